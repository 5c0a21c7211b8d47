package redisledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"
	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// differ has stores and a Memory do the same, and compares all that they answer.
type differ struct {
	names []string
	all   []quota.Ledger // the first is the Memory
	other []quota.Ledger // second ledgers of the same stores
	tree  string
	ids   []string
	last  map[string]time.Time // when an id was used first
	n     int
	rates map[string]int64 // of rolling counters
	wide  bool             // with large amounts
}

// Whatever is done, in whichever order and by whichever of two ledgers, the stores answer as
// the reference does.
func TestStoresAnswerAsMemoryDoes(t *testing.T) {
	addr := servers.SharedRedis(t).Addr()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			mem, err := quota.NewMemory(quota.MemoryConfig{KeepWindows: 200})
			if err != nil {
				t.Fatal(err)
			}
			red := open(t, connect(t, addr), func(c *redisledger.Config) { c.KeepWindows = 200 })
			redisledger.SetClock(red, time.Now)
			red2 := open(t, connect(t, addr), func(c *redisledger.Config) { c.KeepWindows = 200 })
			redisledger.SetClock(red2, time.Now)
			if rapid.Bool().Draw(rt, "exactly") {
				redisledger.Exactly(red2)
			}
			db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			lite, err := sqlledger.New(t.Context(), sqlledger.Config{DB: db, KeepWindows: 200, SweepEvery: -1, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lite.Close(context.Background()) })
			lite2, err := sqlledger.New(t.Context(), sqlledger.Config{DB: db, KeepWindows: 200, SweepEvery: -1, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lite2.Close(context.Background()) })
			d := &differ{names: []string{"memory", "redis", "sqlite"}, all: []quota.Ledger{mem, red, lite}, other: []quota.Ledger{mem, red2, lite2},
				tree: "t{\x00}%é:" + budget.NewID(), last: map[string]time.Time{}, rates: map[string]int64{}}
			d.wide = rapid.IntRange(0, 2).Draw(rt, "wide") == 0
			rt.Repeat(map[string]func(*rapid.T){
				"": func(rt *rapid.T) {
					if res, err := lite.Verify(context.Background()); err != nil || len(res) > 0 {
						rt.Fatalf("Verify: %v %v", res, err)
					}
				},
				"reserve": d.reserve, "reserve2": d.reserve, "settle": d.settle, "settle2": d.settle, "release": d.release, "renew": d.renew,
				"status": d.status, "change": d.change, "history": d.history, "erase": d.erase, "pass": d.pass,
			})
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func (d *differ) each(t *rapid.T, what string, f func(l quota.Ledger) any) {
	var want any
	all := d.all
	if rapid.Bool().Draw(t, "other") {
		all = d.other
	}
	for i, l := range all {
		got := f(l)
		if i == 0 {
			want = got
			t.Logf("%s: %v", what, short(got))
		} else if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n at %v\n %s: %#v\n memory: %#v", what, time.Now().UnixMicro(), d.names[i], got, want)
		}
	}
}

func short(v any) string {
	s := fmt.Sprintf("%+v", v)
	if len(s) > 300 {
		s = s[:300]
	}
	return s
}

func up(d time.Duration) time.Duration { return (d + 999) / 1000 }

func upT(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(999 * time.Nanosecond).UnixMicro()
}

func errOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, quota.ErrUnknownReservation):
		return "unknown"
	case errors.Is(err, quota.ErrUnavailable):
		return "unavailable: " + err.Error()
	}
	return "other"
}

func statusesOf(all []quota.Status) (s []string) {
	for _, x := range all {
		s = append(s, fmt.Sprintf("%q/%s/%v %v-%v limit %d: %d+%d rolling %v burst %d full %d", x.Counter.Key, x.Counter.Window, x.Counter.Unit,
			upT(x.Span.Start), upT(x.Span.End), x.Limit, x.Committed, x.Reserved, x.Rolling, x.Burst, upT(x.FullAt)))
	}
	return s
}

func crossings(all []quota.Crossing) (s []string) {
	for _, x := range all {
		s = append(s, fmt.Sprintf("%q/%s/%v %v-%v %d%% %d of %d", x.Counter.Key, x.Counter.Window, x.Counter.Unit,
			upT(x.Span.Start), upT(x.Span.End), x.Percent, x.Committed, x.Limit))
	}
	return s
}

func (d *differ) amount(t *rapid.T, label string) int64 {
	if d.wide && rapid.IntRange(0, 3).Draw(t, label+"?") == 0 {
		return rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 52, 1<<52 - 1, 1 << 53, 1<<53 + 1, 1 << 62, math.MaxInt64 / 1000}).Draw(t, label)
	}
	return rapid.Int64Range(0, 60).Draw(t, label)
}

var differKeys = []string{"u", "a:b{c}", "k\x00\xff", "ключ", "\x80\x81\x82\x83\x84\x85\x86\x87"}

func (d *differ) entry(t *rapid.T, label string) quota.Entry {
	e := quota.Entry{
		Counter: quota.Counter{
			Key:  rapid.SampledFrom(differKeys).Draw(t, label+" key"),
			Unit: rapid.SampledFrom([]quota.Unit{quota.Tokens, quota.Credits}).Draw(t, label+" unit"),
		},
		Kind:    rapid.SampledFrom([]quota.Kind{quota.Hold, quota.Hold, quota.Hold, quota.Count, quota.Lease, quota.Check}).Draw(t, label+" kind"),
		Amount:  d.amount(t, label+" amount"),
		Ceiling: -1,
		Observe: rapid.IntRange(0, 7).Draw(t, label+" observe") == 0,
	}
	e.Limit = rapid.SampledFrom([]int64{100, 100, 100, 250, 50, 0, -1}).Draw(t, label+" limit")
	if d.wide && rapid.IntRange(0, 2).Draw(t, label+" wide limit") == 0 {
		e.Limit = rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 52, 1 << 53, 1 << 62}).Draw(t, label+" large limit")
	}
	switch rapid.SampledFrom([]string{"m", "m", "h", "", "r", "r", "r2"}).Draw(t, label+" window") {
	case "m":
		e.Window = "minute"
		d.spans(&e, time.Minute)
	case "h":
		e.Window = "hour"
		d.spans(&e, time.Hour)
	case "":
		e.Window = ""
	case "r":
		e.Window, e.Rolling, e.Per = "rolling:1m", true, time.Minute
	case "r2":
		e.Window, e.Rolling, e.Per = "rolling:odd", true, 7*time.Second+13*time.Microsecond
	}
	if e.Rolling {
		if e.Kind == quota.Lease {
			e.Kind = quota.Hold
		}
		e.Burst = rapid.SampledFrom([]int64{0, 10, 100, 100, 250}).Draw(t, label+" burst")
		if d.wide && rapid.IntRange(0, 2).Draw(t, label+" wide burst") == 0 {
			e.Burst = rapid.SampledFrom([]int64{math.MaxInt64, 1 << 52, 1 << 53}).Draw(t, label+" large burst")
		}
		e.MaxWait = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute, math.MaxInt64}).Draw(t, label+" maxwait")
		// Its rate stays: at which of two it was refilled before is not said.
		name := fmt.Sprint(e.Key, e.Window, e.Unit)
		if was, ok := d.rates[name]; ok {
			e.Limit = was
		} else {
			d.rates[name] = e.Limit
		}
	} else {
		if rapid.IntRange(0, 4).Draw(t, label+" soft") == 0 {
			e.Soft = true
			e.Ceiling = rapid.SampledFrom([]int64{-1, 150, 0, math.MaxInt64}).Draw(t, label+" ceiling")
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, label+" thresholds") {
	case 0:
		e.Thresholds = []int{50, 80, 100}
	case 1:
		e.Thresholds = []int{1, 30, 120, quota.MaxPercent}
	}
	return e
}

func (d *differ) spans(e *quota.Entry, w time.Duration) {
	at := time.Now().Truncate(w)
	for i := range e.Spans {
		e.Spans[i] = quota.Span{Start: at.Add(time.Duration(i-1) * w).UTC(), End: at.Add(time.Duration(i) * w).UTC()}
	}
}

func (d *differ) entries(t *rapid.T, label string, most int) (all []quota.Entry) {
	for i := range rapid.IntRange(0, most).Draw(t, label) {
		e := d.entry(t, fmt.Sprint(label, i))
		if !slices.ContainsFunc(all, func(o quota.Entry) bool { return o.Counter == e.Counter }) {
			all = append(all, e)
		}
	}
	return all
}

func (d *differ) id(t *rapid.T) string {
	now := time.Now() // a store may forget it after an hour
	d.ids = slices.DeleteFunc(d.ids, func(id string) bool { return now.Sub(d.last[id]) > 50*time.Minute })
	if len(d.ids) == 0 || rapid.IntRange(0, 19).Draw(t, "unknown") == 0 {
		return "nobody"
	}
	return rapid.SampledFrom(d.ids).Draw(t, "id")
}

func (d *differ) reserve(t *rapid.T) {
	d.n++
	id := fmt.Sprintf("call{%d}\x00é", d.n)
	if rapid.IntRange(0, 5).Draw(t, "again") == 0 {
		if x := d.id(t); x != "nobody" {
			id = x
		}
	}
	r := quota.Reserve{ID: id, Tree: d.tree, Entries: d.entries(t, "e", 5),
		TTL:       rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Second, 40 * time.Second, 5 * time.Minute}).Draw(t, "ttl"),
		Exclusive: rapid.SampledFrom([]string{"", "", "", "x", "{y}\x00"}).Draw(t, "exclusive"),
		Note:      quota.Note{Subject: "u\x00", Turn: "\xff", Call: "{}", Model: "é"}}
	if !slices.Contains(d.ids, id) {
		d.ids = append(d.ids, id)
		d.last[id] = time.Now()
	}
	d.each(t, fmt.Sprintf("Reserve(%q ttl %v exclusive %q %v)", r.ID, r.TTL, r.Exclusive, entriesOf(r.Entries)), func(l quota.Ledger) any {
		res, err := l.Reserve(context.Background(), r)
		if err != nil {
			return errOf(err)
		}
		return map[string]any{"denied": res.Denied, "held": res.Held, "wait": up(res.Wait), "retry": up(res.RetryAfter), "never": res.Never,
			"over": fmt.Sprint(res.Over), "status": statusesOf(res.Status), "crossed": crossings(res.Crossed), "now": upT(res.Now), "repeated": res.Repeated}
	})
}

func (d *differ) settle(t *rapid.T) {
	s := quota.Settle{ID: d.id(t), Tree: d.tree, More: d.entries(t, "more", 2)}
	if rapid.IntRange(0, 2).Draw(t, "no more") > 0 {
		s.More = nil
	}
	s.Actual[quota.Tokens] = d.amount(t, "tokens")
	s.Actual[quota.Credits] = d.amount(t, "credits")
	s.Adjust = rapid.IntRange(0, 2).Draw(t, "adjust") == 0
	s.Seq = rapid.Int64Range(-1, 5).Draw(t, "seq")
	if rapid.IntRange(0, 5).Draw(t, "large seq") == 0 {
		s.Seq = rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1, -1 << 53, 1 << 32, -1 << 32}).Draw(t, "seq2")
	}
	d.each(t, fmt.Sprintf("Settle(%q %v adjust %v %d more %v)", s.ID, s.Actual, s.Adjust, s.Seq, entriesOf(s.More)), func(l quota.Ledger) any {
		res, err := l.Settle(context.Background(), s)
		if err != nil {
			return errOf(err)
		}
		// Whether what was erased was above its limit is not said.
		if slices.ContainsFunc(res.Status, func(st quota.Status) bool { return st.Counter == quota.Counter{} }) {
			res.Over = false
		}
		return map[string]any{"status": statusesOf(res.Status), "over": res.Over, "late": res.Late, "repeated": res.Repeated, "crossed": crossings(res.Crossed)}
	})
}

func (d *differ) release(t *rapid.T) {
	id := d.id(t)
	d.each(t, "Release "+id, func(l quota.Ledger) any { return errOf(l.Release(context.Background(), d.tree, id)) })
}

func (d *differ) renew(t *rapid.T) {
	var ids []string
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		ids = append(ids, d.id(t))
	}
	ttl := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "ttl")
	d.each(t, fmt.Sprintf("Renew %q %v", ids, ttl), func(l quota.Ledger) any {
		lost, err := l.Renew(context.Background(), d.tree, ttl, ids...)
		return fmt.Sprintf("%q %s", lost, errOf(err))
	})
}

func (d *differ) status(t *rapid.T) {
	entries := d.entries(t, "s", 5)
	d.each(t, fmt.Sprintf("Status %v", entriesOf(entries)), func(l quota.Ledger) any {
		all, err := l.Status(context.Background(), d.tree, entries...)
		return fmt.Sprint(statusesOf(all), errOf(err))
	})
}

func (d *differ) change(t *rapid.T) {
	e := d.entry(t, "e")
	if rapid.Bool().Draw(t, "reset") {
		d.each(t, fmt.Sprintf("Reset %v", entriesOf([]quota.Entry{e})), func(l quota.Ledger) any {
			st, err := l.Reset(context.Background(), d.tree, e)
			return fmt.Sprint(statusesOf([]quota.Status{st}), errOf(err))
		})
		return
	}
	n := d.amount(t, "by")
	d.each(t, fmt.Sprintf("TopUp %v %d", entriesOf([]quota.Entry{e}), n), func(l quota.Ledger) any {
		st, err := l.TopUp(context.Background(), d.tree, e, n)
		return fmt.Sprint(statusesOf([]quota.Status{st}), errOf(err))
	})
}

func (d *differ) history(t *rapid.T) {
	e := d.entry(t, "e")
	n := rapid.SampledFrom([]int{-1, 0, 1, 3, 50}).Draw(t, "n")
	d.each(t, fmt.Sprintf("History %+v %d", e.Counter, n), func(l quota.Ledger) any {
		all, err := l.History(context.Background(), d.tree, e.Counter, n)
		return fmt.Sprint(statusesOf(all), errOf(err))
	})
}

func (d *differ) erase(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	key := rapid.SampledFrom(differKeys).Draw(t, "key")
	time.Sleep(time.Microsecond) // what is erased is told from what comes after it by the time
	defer time.Sleep(time.Microsecond)
	d.each(t, fmt.Sprintf("Erase %q", key), func(l quota.Ledger) any { return errOf(l.Erase(context.Background(), d.tree, key)) })
}

func (d *differ) pass(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Microsecond, 17 * time.Microsecond, time.Second, 13 * time.Second, time.Minute, 7*time.Minute + time.Microsecond}).Draw(t, "pass"))
}

func entriesOf(all []quota.Entry) (s []string) {
	for _, e := range all {
		x := fmt.Sprintf("{%q/%s/%v %v %d limit %d", e.Key, e.Window, e.Unit, e.Kind, e.Amount, e.Limit)
		if e.Rolling {
			x += fmt.Sprintf(" burst %d wait %v", e.Burst, e.MaxWait)
		}
		if e.Soft {
			x += fmt.Sprintf(" soft %d", e.Ceiling)
		}
		if e.Observe {
			x += " observe"
		}
		s = append(s, x+fmt.Sprint(e.Thresholds)+"}")
	}
	return s
}
