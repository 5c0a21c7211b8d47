package journal

import "time"

// File is what a journal does with a file.
type File = file

// WrapFiles has all files that are begun be wrapped.
func WrapFiles(c *Config, wrap func(File) File) { c.wrap = wrap }

// What tests have to know.
const (
	FailPause  = failPause
	AckDelay   = ackDelay
	RetryAfter = retryAfter
	MaxPayload = maxPayload
)

// HeaderOfVersion is the head of a file of some version.
func HeaderOfVersion(v byte) []byte {
	b := appendHeader(beginFrame(nil), 0, time.Time{}, "")
	b[len(b)-2] = v
	endFrame(b, 0)
	return b
}
