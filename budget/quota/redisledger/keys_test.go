package redisledger

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

// hashTag is what decides about the place of a key in a Cluster, as its specification
// says: what stands between the first "{" and the next "}", unless that is nothing.
func hashTag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func TestAllKeysOfATreeHaveOneHashTagAndTreesHaveOthers(t *testing.T) {
	t.Parallel()
	l := &Ledger{cfg: Config{Prefix: DefaultPrefix}}
	trees := map[string]string{}
	for _, tree := range []string{
		"", "a", "A", "a:b", "{", "}", "{}", "{a}", "a}b", "%", "%25", "%7B", "%7D", "%7B%7D", "tenant=acme", "tenant=acme/user=x", "ü", "\x00", " ",
	} {
		k := l.keysOf(tree)
		tag := hashTag(k.index())
		if other, ok := trees[tag]; ok {
			t.Errorf("trees %q and %q have the same hash tag %q", tree, other, tag)
		}
		trees[tag] = tree
		for _, key := range []string{
			k.reservation("}{x"), k.exclusive("{e}"), k.account("{user}=1"), k.past(""), k.writer("{}"), k.change("n"),
		} {
			if hashTag(key) != tag {
				t.Errorf("tree %q: key %q has the hash tag %q, that of the index is %q", tree, key, hashTag(key), tag)
			}
		}
	}
}

// Scripts find a slot by its name alone, without knowing where slots begin.
func TestNamesOfSlotsAreFoundNowhereElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := quota.Entry{Counter: quota.Counter{
			Window: rapid.String().Draw(t, "window"), Unit: quota.Unit(rapid.IntRange(0, quota.Units-1).Draw(t, "unit")),
		}, Rolling: rapid.Bool().Draw(t, "rolling"), Per: time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "per"))}
		slot := appendSlot(nil, appendName(nil, &e))
		if len(slot) != 8 || bytes.Count(slot, []byte{255}) == 8 {
			t.Fatalf("slot %x", slot)
		}
		for _, b := range slot {
			if b < 128 {
				t.Fatalf("slot %x has a byte below 128", slot)
			}
		}
		// What stands around it: numbers, of which the last byte is below 128, and a
		// limit of -1.
		var around []byte
		for i := range 4 {
			around = order.AppendUint64(around, uint64(rapid.Int64Range(0, math.MaxInt64).Draw(t, fmt.Sprint("number", i))))
		}
		around = order.AppendUint64(around, math.MaxUint64)
		around = order.AppendUint16(around, uint16(rapid.IntRange(0, quota.MaxPercent).Draw(t, "crossed")))
		if bytes.Contains(around, slot) {
			t.Fatalf("%x is found in %x", slot, around)
		}
	})
}

func TestCountersOfAKeyHaveSlotsOfTheirOwn(t *testing.T) {
	t.Parallel()
	slots := map[string]string{}
	for _, window := range []string{"", "minute", "hour", "day", "week", "month", "month:31", "day@Asia/Tokyo", "rolling:1m", "rolling:1h", "ten-hours"} {
		for u := range quota.Units {
			for _, per := range []time.Duration{0, 1, time.Second, time.Minute, time.Hour} {
				e := quota.Entry{Counter: quota.Counter{Key: "k", Window: window, Unit: quota.Unit(u)}, Rolling: per > 0, Per: per}
				name := appendName(nil, &e)
				if c := counterOf("k", string(name)); c != e.Counter {
					t.Errorf("the name %q is read as %+v, want %+v", name, c, e.Counter)
				}
				slot := string(appendSlot(nil, name))
				if other, ok := slots[slot]; ok {
					t.Errorf("%q and %q have the same slot", name, other)
				}
				slots[slot] = string(name)
			}
		}
	}
}

func TestAnInstantInASpanIsInTheRoundedOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := func(label string) time.Time {
			return time.Unix(rapid.Int64Range(-3, 3).Draw(t, label), rapid.Int64Range(0, 5000).Draw(t, label+" ns"))
		}
		span := quota.Span{Start: at("start"), End: at("end")}
		now := time.UnixMicro(rapid.Int64Range(-3_000_000, 4_000_000).Draw(t, "now"))
		from, to := ends(&[3]quota.Span{{}, span, {}}, 1)
		if got := now.UnixMicro() >= from && now.UnixMicro() < to; got != span.Contains(now) {
			t.Fatalf("%v in %v: %v, but %d in [%d, %d): %v", now, span, span.Contains(now), now.UnixMicro(), from, to, got)
		}
	})
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{time.Time{}, 7}, // what stands for it
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), never},
		{time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC), -never},
		{time.Unix(1, 1), 1_000_001},
		{time.Unix(1, 1000), 1_000_001},
		{time.Unix(-1, 1), -999_999},
	} {
		if got := instant(c.at, 7); got != c.want {
			t.Errorf("instant(%v) = %d, want %d", c.at, got, c.want)
		}
	}
}

func TestThresholdsAreReachedByTheSmallestAmount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, math.MaxInt64).Draw(t, "limit")
		percent := rapid.IntRange(1, quota.MaxPercent).Draw(t, "percent")
		reaches := func(n *big.Int) bool {
			used := new(big.Int).Mul(n, big.NewInt(100))
			return used.Cmp(new(big.Int).Mul(big.NewInt(limit), big.NewInt(int64(percent)))) >= 0
		}
		n, ok := thresholdAt(limit, percent)
		switch {
		case !ok && reaches(big.NewInt(math.MaxInt64)):
			t.Fatalf("%d %% of %d is not reached, but can be", percent, limit)
		case ok && (!reaches(big.NewInt(n)) || reaches(big.NewInt(n-1))):
			t.Fatalf("%d %% of %d is %d, which is not the smallest", percent, limit, n)
		}
	})
}

func TestRefillTimeIsRoundedUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		den := rapid.Int64Range(1, math.MaxInt64).Draw(t, "den")
		missing, part := rapid.Int64Range(0, math.MaxInt64-1).Draw(t, "missing"), rapid.Int64Range(0, den-1).Draw(t, "part")
		units := rapid.Int64Range(1, math.MaxInt64).Draw(t, "units")
		parts := new(big.Int).Mul(big.NewInt(missing), big.NewInt(den))
		parts.Add(parts, big.NewInt(part))
		parts.Add(parts, big.NewInt(units-1))
		want := new(big.Int).Div(parts, big.NewInt(units))
		got := refillTime(missing, part, den, units)
		if want.Cmp(big.NewInt(most)) > 0 {
			want.SetInt64(never)
		}
		if want.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("refillTime(%d, %d, %d, %d) = %d, want %v", missing, part, den, units, got, want)
		}
	})
	if got := refillTime(1, 0, 1, 0); got != never {
		t.Errorf("without a rate it takes %d", got)
	}
}

// A rate in microseconds refills what one in nanoseconds does.
func TestRatesLoseNothingInMicroseconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit      int64
		per        time.Duration
		units, den int64
	}{
		{60, time.Minute, 60, 60_000_000},
		{7, 1500, 7000, 1500},
		{1, 1, 1000, 1},
		{math.MaxInt64, time.Second, math.MaxInt64, 1_000_000},
		{math.MaxInt64, 1500, math.MaxInt64, 2}, // rounded, to the side of the limit
		{-1, time.Second, 0, 1_000_000},
	} {
		units, den := rate(&quota.Entry{Limit: c.limit, Per: c.per, Rolling: true})
		if units != c.units || den != c.den {
			t.Errorf("%d per %v is %d per %dµs, want %d per %d", c.limit, c.per, units, den, c.units, c.den)
		}
	}
}

func FuzzGarbledAnswersAreErrors(f *testing.F) {
	f.Add("\x01\x01\x00\x00", uint8(3))
	f.Add(strings.Repeat("\x01", 500), uint8(1))
	f.Add("\x01\x04"+strings.Repeat("\x00", 34)+"\x01\x00\x01\x00\x01\x00"+strings.Repeat("\x00", 600), uint8(0))
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		d := decoder{s: s}
		rec, err := d.record("headgate:{t}:")
		if err == nil {
			res := rec.settled(nil)
			if len(res.Status) > len(rec.held) {
				t.Fatalf("%d statuses of %d entries", len(res.Status), len(rec.held))
			}
			if res := rec.repeated(nil); len(res.Status) > len(rec.held) {
				t.Fatalf("%d statuses of %d entries", len(res.Status), len(rec.held))
			}
		}
		entries := make([]quota.Entry, n%8)
		for i := range entries {
			entries[i].Rolling, entries[i].Per = i%2 == 1, time.Minute
		}
		d = decoder{s: s}
		if res, err := d.reserved('T', entries, nil); err == nil && len(s) < 27+slotLen*len(entries) {
			t.Fatalf("%d bytes are read as %+v", len(s), res)
		}
	})
}
