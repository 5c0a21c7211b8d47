package redisbudget_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/internal/servers"
)

// sharing makes one whose client waits for as long as its Timeout, which is long.
func sharing(t testing.TB, client redis.UniversalClient, change ...func(*redisbudget.Config)) *redisbudget.Sharing {
	t.Helper()
	cfg := redisbudget.Config{Client: client, Timeout: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	s, err := redisbudget.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair is the script and the reference, which are told the same.
type pair struct {
	sharing   *redisbudget.Sharing
	store     agent.Store
	cfg       share.CoordinatorConfig
	reference *share.Coordinator
	now       time.Time
}

func (p *pair) do(t *rapid.T, r share.Request) share.Reply {
	redisbudget.SetClock(p.sharing, p.now)
	got, err := p.store.Do(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if p.reference == nil {
		p.cfg.Epoch = got.Epoch // each names its own
		if p.reference, err = share.NewCoordinator(p.cfg); err != nil {
			t.Fatal(err)
		}
	}
	if want := p.reference.Do(p.now, r); !reflect.DeepEqual(got, want) {
		t.Fatalf("at %v to %+v\nthe script answers %+v\nthe reference      %+v", p.now.UnixMicro(), r, got, want)
	}
	return got
}

// player is a replica that says anything.
type player struct {
	name       string
	epoch, seq int64
	last       share.Reply
	heard      time.Time
	request    share.Request
	limits     []int64
	shares     []float64
}

func drawDims(t *rapid.T) []share.Dim {
	window := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, 20 * time.Second, time.Minute})
	var list []share.Dim
	for i := range rapid.IntRange(1, 3).Draw(t, "dimensions") {
		name := func(s string) string { return fmt.Sprint(s, i) }
		d := share.Dim{Limit: rapid.Int64Range(0, 1000).Draw(t, name("limit")), Window: window.Draw(t, name("window"))}
		switch rapid.IntRange(0, 4).Draw(t, name("shape")) {
		case 0, 1:
			d.Shape = share.Bucket
			d.Burst = rapid.Int64Range(0, 1200).Draw(t, name("burst"))
		case 2:
			d.Shape, d.Pace = share.Bucket, true
			d.Burst = rapid.Int64Range(1, 50).Draw(t, name("burst"))
		case 3:
			d.Cell = d.Window / time.Duration(rapid.IntRange(1, 9).Draw(t, name("cells")))
		}
		list = append(list, d)
	}
	if rapid.Bool().Draw(t, "slots") {
		list = append(list, share.Dim{Shape: share.Slots, Limit: rapid.Int64Range(1, 20).Draw(t, "limit of slots")})
	}
	return list
}

// next is the next request of a player: partly what a replica would say, partly not.
func (p *player) next(t *rapid.T, now time.Time, dims []share.Dim, mode share.Mode) share.Request {
	p.seq++
	r := share.Request{
		Replica: p.name, Epoch: p.epoch, Seq: p.seq, Coordinator: p.last.Epoch, Prev: p.last.At, Mode: mode,
		Weight: float64(rapid.IntRange(0, 3).Draw(t, "weight")),
		Leave:  rapid.IntRange(0, 30).Draw(t, "leave") == 0,
	}
	if p.last.At != 0 {
		r.Since = max(now.Sub(p.heard), 0)
	}
	if rapid.IntRange(0, 15).Draw(t, "alone") == 0 {
		r.Alone = time.Duration(rapid.IntRange(1, 20_000).Draw(t, "for")) * time.Millisecond
	}
	if rapid.IntRange(0, 20).Draw(t, "another mode") == 0 {
		r.Mode = share.Mode(rapid.IntRange(0, 2).Draw(t, "mode"))
	}
	for i, d := range dims {
		had, granted := int64(0), int64(0)
		if p.request.Dims != nil {
			had = p.request.Dims[i].Has
		}
		if p.last.Granted != nil {
			granted = p.last.Granted[i]
		}
		report := share.DimReport{Limit: p.limits[i], Share: p.shares[i]}
		report.Has = rapid.Int64Range(0, had+granted+3).Draw(t, "has")
		for range rapid.IntRange(0, 2).Draw(t, "spends") {
			report.Spent = append(report.Spent, share.Spend{
				Age:    time.Duration(rapid.IntRange(0, 3_000_000).Draw(t, "age")) * time.Microsecond,
				Amount: rapid.Int64Range(-20, max(1, had+granted-report.Has)).Draw(t, "amount"),
			})
		}
		most := max(d.Limit/4, 2)
		if rapid.IntRange(0, 8).Draw(t, "large") == 0 {
			most = d.Limit + 5
		}
		if rapid.Bool().Draw(t, "waits") {
			report.Need = rapid.Int64Range(0, most).Draw(t, "need")
		}
		report.Want = report.Need + rapid.Int64Range(0, most).Draw(t, "want")
		if rapid.IntRange(0, 15).Draw(t, "told") == 0 {
			report.Left = &share.Left{Units: rapid.Int64Range(0, d.Limit).Draw(t, "left"), Reset: time.Duration(rapid.IntRange(0, 70_000).Draw(t, "reset")) * time.Millisecond}
		}
		r.Dims = append(r.Dims, report)
	}
	p.request = r
	return r
}

func compare(t *rapid.T, s *redisbudget.Sharing, cfg share.CoordinatorConfig, name string, steps int) {
	store, err := redisbudget.Open(s, budget.SharedQuota{Name: name}, cfg.Dims)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{sharing: s, store: store, cfg: cfg, now: time.Unix(1_000_000, 0)}
	mode := share.Mode(rapid.IntRange(0, 2).Draw(t, "mode"))
	var players []*player
	for i := range rapid.IntRange(1, 6).Draw(t, "replicas") {
		n := &player{name: fmt.Sprint("replica-", i), epoch: 1}
		for _, d := range cfg.Dims {
			n.limits = append(n.limits, d.Limit)
			n.shares = append(n.shares, 0)
		}
		players = append(players, n)
	}
	for range steps {
		n := rapid.SampledFrom(players).Draw(t, "replica")
		var r share.Request
		switch rapid.IntRange(0, 24).Draw(t, "what") {
		case 0: // it comes again, or comes late
			if r = n.request; r.Dims == nil {
				continue
			}
			r.Seq = max(r.Seq-rapid.Int64Range(0, 1).Draw(t, "earlier"), 1)
			p.do(t, r)
			continue
		case 1: // a new life, on a clock that may be behind
			n.epoch += rapid.SampledFrom([]int64{1, 1, 1, -1, -2, 3}).Draw(t, "clock")
			n.seq, n.last, n.request = 0, share.Reply{}, share.Request{}
		case 2:
			n.last.Epoch = 77 // of a coordinator that is gone
		case 3, 4:
			p.now = p.now.Add(time.Duration(rapid.Int64Range(0, 80_000_000).Draw(t, "pause")) * time.Microsecond)
		case 5:
			p.now = p.now.Add(-time.Duration(rapid.Int64Range(0, 3_000_000).Draw(t, "back")) * time.Microsecond)
		case 6:
			i := rapid.IntRange(0, len(cfg.Dims)-1).Draw(t, "which")
			n.limits[i] = rapid.Int64Range(0, 2*cfg.Dims[i].Limit).Draw(t, "new limit")
			n.shares[i] = rapid.SampledFrom([]float64{0, 0.5, 0.7, 1}).Draw(t, "new share")
		default:
			p.now = p.now.Add(time.Duration(rapid.Int64Range(0, 2_000_000).Draw(t, "time")) * time.Microsecond)
		}
		r = n.next(t, p.now, cfg.Dims, mode)
		reply := p.do(t, r)
		if reply.Stale {
			n.last.Epoch, n.last.At = reply.Epoch, 0
			if reply.Newest >= n.epoch {
				n.epoch = reply.Newest + rapid.Int64Range(0, 1).Draw(t, "beyond")
			}
		} else {
			n.last, n.heard = reply, p.now
		}
	}
}

// Whatever replicas say, in whatever order and at whatever times, the script answers what
// share.Coordinator does.
func TestTheScriptAnswersWhatTheReferenceDoes(t *testing.T) {
	t.Parallel()
	client := servers.SharedRedis(t).Client()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := share.CoordinatorConfig{
			Dims: drawDims(rt), Learn: rapid.Bool().Draw(rt, "learn"), Replicas: rapid.IntRange(1, 4).Draw(rt, "at least"),
			TTL:  time.Duration(rapid.SampledFrom([]int{1000, 1333, 5000}).Draw(rt, "ttl")) * time.Millisecond,
			Late: time.Duration(rapid.SampledFrom([]int{100, 2000}).Draw(rt, "late")) * time.Millisecond,
		}
		s := sharing(t, client, func(c *redisbudget.Config) {
			c.TTL, c.Late, c.Replicas, c.Prefix = cfg.TTL, cfg.Late, cfg.Replicas, "reference:"
		})
		redisbudget.Learn(s, cfg.Learn)
		compare(rt, s, cfg, rand.Text(), 60)
	})
}
