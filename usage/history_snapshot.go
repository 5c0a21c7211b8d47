package usage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// historyVersion is the version of snapshots that is written and read.
const historyVersion = 1

// HistorySnapshot is what a History has learned, for JSON. Store it when a program
// ends and merge it into a new History when it starts, or merge those of other
// replicas.
type HistorySnapshot struct {
	// Version is the version of this form, 1.
	Version int `json:"version"`
	// Keys are the pairs of model and agent label, sorted.
	Keys []HistoryKey `json:"keys"`
}

// HistoryKey is what is known about one pair of model and agent label.
type HistoryKey struct {
	// Model and Agent are the pair.
	Model string `json:"model"`
	Agent string `json:"agent,omitempty"`
	// At is the instant up to which the weights have decayed.
	At time.Time `json:"at"`
	// Input and Output are histograms of settled ÷ estimated, Tokens one of the
	// settled output in tokens.
	Input  HistogramSnapshot `json:"input"`
	Output HistogramSnapshot `json:"output"`
	Tokens HistogramSnapshot `json:"tokens"`
}

// HistogramSnapshot is a histogram with buckets of equal ratio.
type HistogramSnapshot struct {
	// Sum is the sum of the values.
	Sum float64 `json:"sum"`
	// Buckets are the buckets that hold anything, rising.
	Buckets []HistogramBucket `json:"buckets,omitempty"`
}

// HistogramBucket is one bucket of a histogram.
type HistogramBucket struct {
	// Index is the bucket's number. There are sixteen buckets in an octave, and
	// bucket 0 begins at the smallest value: 1/64 for ratios, 1 for tokens. Within
	// an octave the buckets are equally wide, so bucket 16k+j begins at 2^k × (1 +
	// j/16) times the smallest value.
	Index int `json:"i"`
	// Weight is how many values it holds, old ones counting less.
	Weight float64 `json:"w"`
}

// Snapshot is what the history has learned so far. It may be taken while the
// history is in use.
func (h *History) Snapshot() HistorySnapshot {
	pairs := *h.pairs.Load()
	s := HistorySnapshot{Version: historyVersion, Keys: make([]HistoryKey, 0, len(pairs))}
	keys := slices.SortedFunc(maps.Keys(pairs), func(a, b pair) int {
		return cmp.Or(strings.Compare(a.model, b.model), strings.Compare(a.agent, b.agent))
	})
	for _, k := range keys {
		if !utf8.ValidString(k.model) || !utf8.ValidString(k.agent) {
			continue // JSON would make another label of it
		}
		l := pairs[k]
		l.mu.Lock()
		s.Keys = append(s.Keys, HistoryKey{
			Model: k.model, Agent: k.agent, At: time.UnixMilli(l.at).UTC(),
			Input: l.input.snapshot(), Output: l.output.snapshot(), Tokens: l.tokens.snapshot(),
		})
		l.mu.Unlock()
	}
	return s
}

func (h *histogram) snapshot() HistogramSnapshot {
	s := HistogramSnapshot{Sum: h.sum}
	for i, n := range h.counts {
		if n > 0 {
			s.Buckets = append(s.Buckets, HistogramBucket{i, float64(n)})
		}
	}
	return s
}

// Merge adds what a snapshot has learned to what the history has: into a new
// History it restores, and that of another replica it adds up. Both sides are
// forgotten up to now first; a snapshot from after now counts as one from now, for
// replicas' clocks differ. Do not merge a snapshot of the history itself, or one
// replica's twice: its calls would count twice.
//
// The snapshot is checked first, and nothing is merged from one that is not
// right. The error names the field and the value.
func (h *History) Merge(s HistorySnapshot, now time.Time) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if n := len(s.Keys); n > h.maxKeys {
		return fmt.Errorf("usage: history snapshot: keys: %d, more than the %d of HistoryConfig.MaxKeys", n, h.maxKeys)
	}
	at := now.UnixMilli()
	for i := range s.Keys {
		k := &s.Keys[i]
		other := newLearned(min(k.At.UnixMilli(), at))
		other.input.restore(&k.Input)
		other.output.restore(&k.Output)
		other.tokens.restore(&k.Tokens)
		other.decay(at, h.halfLife)
		p := pair{k.Model, k.Agent}
		l := (*h.pairs.Load())[p]
		if l == nil {
			if l = h.add(p, at); l == nil {
				h.refused.Add(1)
				continue
			}
		}
		l.mu.Lock()
		l.decay(at, h.halfLife)
		for i, into := range l.histograms() {
			into.merge(other.histograms()[i])
		}
		l.read = false
		l.mu.Unlock()
	}
	return nil
}

// restore fills an empty histogram from a snapshot that is right.
func (h *histogram) restore(s *HistogramSnapshot) {
	for _, b := range s.Buckets {
		h.counts[b.Index] = float32(b.Weight)
		h.weight += b.Weight
	}
	h.sum = s.Sum
}

// merge adds another histogram of the same kind.
func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.weight += o.weight
	h.sum += o.sum
	if h.weight > maxSamples {
		h.scale(maxSamples / h.weight)
	}
}

// Validate reports the first thing that is wrong with a snapshot: another version,
// a label that is too long, given twice or not text, a bucket that does not
// exist, a weight that is no number above 0, or a sum that the buckets
// contradict.
func (s HistorySnapshot) Validate() error {
	if s.Version != historyVersion {
		return fmt.Errorf("usage: history snapshot: version: %d is not %d", s.Version, historyVersion)
	}
	seen := make(map[pair]bool, len(s.Keys))
	for i := range s.Keys {
		k := &s.Keys[i]
		fail := func(field, format string, args ...any) error {
			return fmt.Errorf("usage: history snapshot: keys[%d].%s: %s", i, field, fmt.Sprintf(format, args...))
		}
		switch p := (pair{k.Model, k.Agent}); {
		case len(k.Model) > maxLabel || !utf8.ValidString(k.Model):
			return fail("model", "%q is no text of at most %d bytes", clip(k.Model), maxLabel)
		case len(k.Agent) > maxLabel || !utf8.ValidString(k.Agent):
			return fail("agent", "%q is no text of at most %d bytes", clip(k.Agent), maxLabel)
		case seen[p]:
			return fail("model", "%q with agent %q came before", clip(k.Model), clip(k.Agent))
		case k.At.IsZero():
			return fail("at", "is not set")
		default:
			seen[p] = true
		}
		empty := newLearned(0)
		for _, part := range [...]struct {
			name string
			from *HistogramSnapshot
			into *histogram
		}{{"input", &k.Input, &empty.input}, {"output", &k.Output, &empty.output}, {"tokens", &k.Tokens, &empty.tokens}} {
			if where, problem := part.from.check(part.into); problem != "" {
				return fail(part.name+where, "%s", problem)
			}
		}
	}
	return nil
}

// check says what is wrong with a snapshot of a histogram of some kind.
func (s *HistogramSnapshot) check(kind *histogram) (where, problem string) {
	var low, high float64 // what the values sum up to at least and at most
	last := -1
	for i, b := range s.Buckets {
		where := fmt.Sprintf(".buckets[%d]", i)
		switch {
		case b.Index <= last || b.Index >= len(kind.counts):
			return where + ".i", fmt.Sprintf("%d does not rise within 0 to %d", b.Index, len(kind.counts)-1)
		case !(b.Weight > 0 && b.Weight <= 2*maxSamples):
			return where + ".w", fmt.Sprintf("%v is not above 0 and at most %d", b.Weight, 2*maxSamples)
		}
		last = b.Index
		low += b.Weight * kind.lower(b.Index)
		high += b.Weight * kind.lower(b.Index+1)
	}
	// Counts are rounded to a float32 again and again.
	const slack = 1e-3
	if math.IsNaN(s.Sum) || s.Sum < low*(1-slack) || s.Sum > high*(1+slack) {
		return ".sum", fmt.Sprintf("%v is not from %v to %v, as the buckets say", s.Sum, low, high)
	}
	return "", ""
}
