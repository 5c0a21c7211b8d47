package sqlledger_test

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// Names may be of any bytes, and long; those that no index takes are not kept with a call.
func TestNamesOfAnyBytesAndLengthAreNoError(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l := d.ledger(t)
		var noise strings.Builder // nothing that a database makes shorter
		for x := uint32(1); noise.Len() < 2000; {
			x = x*1664525 + 1013904223
			noise.WriteByte(byte(x>>24) | 0x80)
		}
		for _, name := range []string{noise.String(), noise.String()[:1400], strings.Repeat("\x00", 2000), "{\"a'\\", ""} {
			e := held(name, 1, 10)
			e.Window = name
			r := quota.Reserve{
				ID: budget.NewID(), Tree: name, Entries: []quota.Entry{e}, Exclusive: name,
				Note: quota.Note{Subject: name, Turn: name, Call: name, Model: name, Agent: name},
			}
			if res, err := l.Reserve(t.Context(), r); err != nil || res.Denied >= 0 || res.Held {
				t.Errorf("Reserve of %.10q: %+v, %v", name, res, err)
			}
			stands(t, l, name, e, 0, 1)
		}
		reproduced(t, l)
	})
}
