package anthropic

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"time"
)

const (
	// RunesPerToken is the number of characters that make a token.
	RunesPerToken = 4
	// TokensPerMedia is the number of tokens of every image and document: the
	// largest image that most models look at (Anthropic docs, vision page).
	TokensPerMedia = 1568
	// MinCachedTokens is the length from which on a prompt is cached (Anthropic
	// docs, prompt caching page, for most models).
	MinCachedTokens = 1024

	maxMarks = 4
)

// meter measures a prompt while it is read, in the order in which it is cached:
// tools, system, messages.
type meter struct {
	chars int64
	files int64
	sum   hash.Hash

	ends   []prefix // of every block so far
	marked []prefix // those that are to be cached
}

// prefix is a prompt up to the end of a block.
type prefix struct {
	digest [sha256.Size]byte
	tokens int64
	life   time.Duration // 0 where it is not marked
}

func newMeter(model string) meter {
	m := meter{sum: sha256.New()}
	m.sum.Write([]byte(model)) // a hash never fails to write
	return m
}

// tokens returns the length of what was measured.
func (m *meter) tokens() int64 {
	return (m.chars+RunesPerToken-1)/RunesPerToken + m.files*TokensPerMedia
}

func (m *meter) role(role string) { m.sum.Write([]byte("\x00" + role)) }

func (m *meter) media(b object, field string) error {
	m.files++
	return m.block(b, field, func(object) int64 { return 0 })
}

// block adds a block with so many characters, and caches the prompt up to it if
// it is marked.
func (m *meter) block(b object, field string, chars func(object) int64) error {
	mark := b.get("cache_control")
	if mark != nil {
		b = maps.Clone(b)
		delete(b, "cache_control") // marks come and go in the same prompt
	}
	m.chars += chars(b)
	m.sum.Write([]byte{0})
	m.sum.Write(compact(b))
	p := prefix{tokens: m.tokens()}
	m.sum.Sum(p.digest[:0])
	m.ends = append(m.ends, p)
	if mark == nil {
		return nil
	}
	return m.mark(mark, field+".cache_control")
}

// mark has the prompt cached up to here.
func (m *meter) mark(raw json.RawMessage, field string) error {
	var control object
	if err := read(raw, field, &control); err != nil {
		return err
	}
	var kind string
	if err := required(control, "type", &kind); err != nil || kind != "ephemeral" {
		return fmt.Errorf("%s.type: Input should be 'ephemeral'", field)
	}
	life := 5 * time.Minute
	switch ttl := stringIn(control, "ttl"); {
	case ttl == "1h":
		life = time.Hour
	case ttl != "5m" && control.get("ttl") != nil:
		return fmt.Errorf("%s.ttl: Input should be '5m' or '1h'", field)
	}
	if len(m.ends) == 0 {
		return nil
	}
	p := m.ends[len(m.ends)-1]
	p.life = life
	if m.marked = append(m.marked, p); len(m.marked) > maxMarks {
		return fmt.Errorf("cache_control: a maximum of %d blocks may have it", maxMarks)
	}
	return nil
}

// tokens returns the length of the prompt.
func (p *prompt) tokens() int64 { return p.meter.tokens() }
