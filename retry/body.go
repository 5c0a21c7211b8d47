package retry

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// maxMessage bounds, in bytes, the message that a body becomes which is not an
// error object: 8 KiB.
const maxMessage = 8 << 10

// retryInfoType is the type URL of google.rpc.RetryInfo.
const retryInfoType = "type.googleapis.com/google.rpc.RetryInfo"

// object is a JSON object whose values stay as they were written.
type object map[string]json.RawMessage

// addRetryInfo returns the body of an error response with a google.rpc.RetryInfo
// among its details, or false if the body is to stay as it is.
func addRetryInfo(body []byte, statusCode int, status string, hint time.Duration) ([]byte, bool) {
	unwrapped := false
	source := body
	if first, ok := firstOfArray(body); ok {
		source, unwrapped = first, true
	}
	var top object
	if err := json.Unmarshal(source, &top); err != nil || top == nil {
		top = object{}
	}
	var apiError object
	if err := json.Unmarshal(top["error"], &apiError); err != nil || apiError == nil {
		if unwrapped {
			top = object{}
		}
		apiError = object{
			"message": encode(message(body)),
			"status":  encode(status),
		}
	}
	if code := string(apiError["code"]); code == "" || code == "null" || code == "0" {
		apiError["code"] = encode(statusCode)
	}

	var list []json.RawMessage
	if raw := apiError["details"]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, false
		}
	}
	if hasRetryInfo(list) {
		return source, unwrapped
	}
	list = append(list, encode(map[string]string{
		"@type":      retryInfoType,
		"retryDelay": formatProtoDuration(hint),
	}))
	apiError["details"] = encode(list)
	top["error"] = encode(apiError)
	return encode(top), true
}

// hasRetryInfo reports whether one of the details is a RetryInfo with a usable
// delay.
func hasRetryInfo(list []json.RawMessage) bool {
	for _, raw := range list {
		var d map[string]any
		if err := json.Unmarshal(raw, &d); err != nil {
			continue
		}
		if messageName(d) == "google.rpc.RetryInfo" {
			if _, ok := retryDelay(d); ok {
				return true
			}
		}
	}
	return false
}

// message is the text of a body, cut before a rune that would not fit.
func message(body []byte) string {
	text := string(bytes.TrimSpace(body))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return text
}

// encode is the JSON of v, which is made of strings, numbers and JSON that has
// been decoded before, so that it cannot fail. Characters such as "<" are not
// escaped, because the result is not for HTML and is to differ as little as
// possible from what came.
func encode(v any) json.RawMessage {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
