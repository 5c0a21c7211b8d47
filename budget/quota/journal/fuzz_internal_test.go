package journal

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// frameOf is a frame with a payload.
func frameOf(payload []byte) []byte {
	b := append(beginFrame(nil), payload...)
	endFrame(b, 0)
	return b
}

// samples are payloads of each kind.
func samples() [][]byte {
	at := time.Date(2026, 11, 23, 12, 0, 0, 1, time.UTC)
	entries := []quota.Entry{
		{Counter: quota.Counter{Key: "t=acme/u=ann", Window: "day", Unit: quota.Tokens}, Amount: 7, Limit: -1, Thresholds: []int{50, 100}},
		{Counter: quota.Counter{Key: "t=acme", Unit: quota.Turns}, Kind: quota.Count, Amount: math.MaxInt64, Limit: math.MaxInt64},
	}
	span := func(i int) quota.Span {
		if i == 0 {
			return quota.Span{Start: at, End: at.Add(time.Hour)}
		}
		return quota.Span{}
	}
	all := func(*quota.Entry) bool { return true }
	s := quota.Settle{
		ID: "id", Tree: "acme", Adjust: true, Seq: math.MinInt64,
		Actual: quota.Amounts{1, 2, 3, math.MaxInt64, 5, 6}, More: entries[1:],
	}
	note := quota.Note{Subject: "s", Turn: "t", Call: "c", Model: "m", Agent: "a"}
	return [][]byte{
		appendHeader(nil, 3, at, "writer"),
		append(appendPrefix(nil, settleKind, 4, at), appendBody(nil, &s, &known{at, at, true, note, appendEntries(nil, entries, all, span)})...),
		append(appendPrefix(nil, settleKind, 5, time.Time{}), appendBody(nil, &quota.Settle{ID: "x"}, &known{})...),
		append(appendPrefix(nil, countKind, 6, at), appendBody(nil, &quota.Settle{ID: "x"}, &known{taken: at, note: note, entries: appendEntries(nil, entries[1:], all, span)})...),
		appendAcks(nil, at, []ack{{4, Answered}, {math.MaxUint64, Doubtful}}),
		appendErase(nil, 7, at, "acme", "t=acme/u=ann"),
		appendGap(nil, at, gap{at, at.Add(time.Second), 9}),
	}
}

// encode is a payload that says what another one does.
func encode(d *decoded) []byte {
	switch d.kind {
	case headerKind:
		return appendHeader(nil, d.n, d.at, d.writer)
	case ackKind:
		return appendAcks(nil, d.at, d.acks)
	case eraseKind:
		return appendErase(nil, d.n, d.at, d.record.Tree, d.key)
	case gapKind:
		return appendGap(nil, d.at, d.gap)
	}
	r := &d.record
	s := r.settle()
	s.More = slices.Clone(s.More)
	for i := range s.More { // in the window that was recorded, whenever that is
		s.More[i].Spans[0], s.More[i].Spans[2] = s.More[i].Spans[1], s.More[i].Spans[1]
	}
	of := known{taken: r.Taken, told: r.Told, again: d.again, note: r.Note}
	if !r.Taken.IsZero() {
		of.entries = appendEntries(nil, r.Entries, isCalendar, func(i int) quota.Span { return r.Entries[i].Spans[1] })
	}
	return append(appendPrefix(nil, d.kind, d.n, d.at), appendBody(nil, &s, &of)...)
}

// Whatever is in a file: reading it does not fail, takes every byte once, and finds the
// frames that follow garbage; and a payload that can be read says the same when it is
// written again.
func FuzzReading(f *testing.F) {
	var whole []byte
	for _, payload := range samples() {
		f.Add(payload)
		whole = append(whole, frameOf(payload)...)
	}
	f.Add(whole)
	f.Add(whole[5 : len(whole)-5])
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := decode(data); err == nil {
			again, err := decode(encode(&d))
			if err != nil || !reflect.DeepEqual(again, d) {
				t.Fatalf("%+v\nis read again as\n%+v, %v", d, again, err)
			}
		}
		at := 0
		for x := range pieces(data) {
			if x.at != at || x.end <= x.at {
				t.Fatalf("a piece is from %d to %d, after %d", x.at, x.end, at)
			}
			if x.payload != nil && !bytes.Equal(frameOf(x.payload), data[x.at:x.end]) {
				t.Fatalf("a frame from %d to %d has another form", x.at, x.end)
			}
			at = x.end
		}
		if at != len(data) {
			t.Fatalf("%d bytes of %d were read", at, len(data))
		}
		last := frameOf([]byte("last"))
		found := false
		for x := range pieces(append(data[:len(data):len(data)], last...)) {
			found = x.end == len(data)+len(last) && (string(x.payload) == "last" || len(x.payload) > len("last"))
		}
		if !found {
			t.Fatal("the frame after it was not found")
		}
	})
}

func TestEachKindIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, payload := range samples() {
		d, err := decode(payload)
		if err != nil {
			t.Fatalf("%x: %v", payload, err)
		}
		if again := encode(&d); !bytes.Equal(again, payload) {
			t.Errorf("%+v is written as\n%x, was\n%x", d, again, payload)
		}
		for n := range payload {
			if d, err := decode(payload[:n]); err == nil {
				t.Errorf("%d bytes of %x are read as %+v", n, payload, d)
			}
		}
		if _, err := decode(append(payload[:len(payload):len(payload)], 0)); err == nil {
			t.Errorf("%x and a byte more is read", payload)
		}
	}
}
