package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/internal/servers"
)

// callerVariable has the caller of a process, in JSON.
const callerVariable = "HEADGATE_CHAOS_CALLER"

// caller is a program whose agents make calls.
type caller struct {
	Store   storeAt
	Journal string // the directory; "" is none
	Trees   []string
	Seed    uint64
	Workers int
	// Skew is how far the caller's clock is ahead.
	Skew time.Duration
	// Lossy is true if the store may lose reservations.
	Lossy bool
	// Blocks is true if it leases blocks of the one counter that it uses.
	Blocks bool
	// Fills is true if there is no more room on the disk after a while, and again later.
	Fills bool
}

// What a caller says of a call, one line each: what is about to be done before it is done,
// and what was acknowledged after that.
//
//	asks ID TREE USER TOKENS CREDITS
//	took ID WINDOW            since when the minute is in which it counts, in Unix seconds
//	denied ID
//	settles ID TOKENS CREDITS
//	settled ID LATE
//	releases ID
//	released ID
//
//	failed ID WHY             once; it is tried again
//
// And what must not be:
//
//	late WHAT                 there is no answer yet
//	wrong WHAT
type say func(format string, args ...any)

// TestCaller is the caller of other tests.
func TestCaller(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of the tests that make havoc")
	}
	var c caller
	if err := json.Unmarshal([]byte(os.Getenv(callerVariable)), &c); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	var ledger quota.Ledger
	for begun := time.Now(); ledger == nil; { // the store may be down just now
		opening, cancel := context.WithTimeout(ctx, answerWithin)
		l, _, err := c.Store.open(opening)
		cancel()
		switch {
		case err == nil:
			ledger = l
		case time.Since(begun) > 30*time.Second:
			fmt.Println("wrong: there is no store:", err)
			return
		default:
			time.Sleep(20 * time.Millisecond)
		}
	}
	within := answerWithin
	if c.Journal != "" {
		within = answerWithinJournaled
		j, err := journal.Open(c.Journal, journalConfig)
		if err != nil {
			fmt.Println("wrong:", err)
			return
		}
		if ledger, err = journal.New(ledger, j); err != nil {
			fmt.Println("wrong:", err)
			return
		}
	}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if c.Blocks {
		shared, err := blocks.New(ledger, blocksConfig)
		if err != nil {
			fmt.Println("wrong:", err)
			return
		}
		ledger = shared
	}
	if c.Fills {
		go fillDisk(c.Store.At, say)
	}
	c.work(ctx, ledger, within, say)
}

// journalConfig waits for the disk for longer than anybody makes it take here, so that
// nothing goes unrecorded.
var journalConfig = journal.Config{Logger: silent, SyncTimeout: 30 * time.Second}

// work makes calls until ctx ends. What is under way then ends in order.
func (c *caller) work(ctx context.Context, ledger quota.Ledger, within time.Duration, say say) {
	p := newPulse(within, func(what string) { say("late %s", what) })
	defer p.close()
	var wg sync.WaitGroup
	for i := range c.Workers {
		w := &worker{caller: c, ledger: ledger, pulse: p, say: say, chance: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		wg.Go(func() {
			for ctx.Err() == nil {
				w.call()
			}
		})
	}
	wg.Wait()
}

// worker makes one call after the other.
type worker struct {
	*caller
	ledger quota.Ledger
	pulse  *pulse
	say    say
	chance *rand.Rand
}

const (
	// tries is how often an operation is tried that gets no answer, and pause how long is
	// waited in between.
	tries = 40
	pause = 50 * time.Millisecond
	// denialPause is how long whoever is denied does nothing: a denial may cost no round trip.
	denialPause = 10 * time.Millisecond
)

// try makes an operation until it is answered.
func (w *worker) try(what, id string, do func(ctx context.Context) error) error {
	for n := 1; ; n++ {
		end := w.pulse.begin(what + " " + id)
		err := do(context.Background())
		end()
		if err == nil || !errors.Is(err, quota.ErrUnavailable) {
			return err
		}
		w.say("failed %s: %s %v", id, what, err)
		if n == tries {
			return err
		}
		time.Sleep(pause)
	}
}

// expected reports whether the end of a call may have an error.
func (w *worker) expected(err error) bool {
	return errors.Is(err, quota.ErrUnavailable) || w.Lossy && errors.Is(err, quota.ErrUnknownReservation)
}

// call makes a call. If its end is not acknowledged, the next one begins all the same.
func (w *worker) call() {
	id := budget.NewID()
	tree, user := w.Trees[w.chance.IntN(len(w.Trees))], users[w.chance.IntN(len(users))]
	tokens, credits := w.chance.Int64N(100)+1, w.chance.Int64N(50)+1
	w.say("asks %s %s %s %d %d", id, tree, user, tokens, credits)
	r := quota.Reserve{ID: id, Tree: tree, TTL: ttl, Entries: request(user, time.Now().Add(w.Skew), tokens, credits)}
	if w.Blocks {
		r.Entries = []quota.Entry{hotOf(tokens)}
	}
	var res quota.Reserved
	err := w.try("reserve", id, func(ctx context.Context) (err error) {
		res, err = w.ledger.Reserve(ctx, r)
		return err
	})
	switch {
	case errors.Is(err, quota.ErrUnavailable):
		return
	case err != nil:
		w.say("wrong: reserve %s: %v", id, err)
		return
	case res.Denied >= 0:
		w.say("denied %s", id)
		time.Sleep(denialPause)
		return
	}
	w.say("took %s %d", id, res.Status[minuteAt].Span.Start.Unix())
	time.Sleep(between(w.chance, 0, 20*time.Millisecond))
	if w.chance.IntN(10) == 0 {
		err := w.try("renew", id, func(ctx context.Context) error {
			_, err := w.ledger.Renew(ctx, tree, ttl, id)
			return err
		})
		if err != nil && !errors.Is(err, quota.ErrUnavailable) {
			w.say("wrong: renew %s: %v", id, err)
		}
	}
	switch w.chance.IntN(8) {
	case 0: // it is forgotten, as by an agent that died
	case 1:
		w.say("releases %s", id)
		if err := w.try("release", id, func(ctx context.Context) error { return w.ledger.Release(ctx, tree, id) }); err == nil {
			w.say("released %s", id)
		} else if !w.expected(err) {
			w.say("wrong: release %s: %v", id, err)
		}
	default:
		used := quota.Settle{ID: id, Tree: tree}
		used.Actual[quota.Tokens] = w.chance.Int64N(tokens + tokens/5 + 1) // sometimes more than was held
		if w.Blocks {
			used.Actual[quota.Tokens] = min(used.Actual[quota.Tokens], tokens)
		}
		used.Actual[quota.Credits] = w.chance.Int64N(credits + 1)
		w.say("settles %s %d %d", id, used.Actual[quota.Tokens], used.Actual[quota.Credits])
		var res quota.Settled
		err := w.try("settle", id, func(ctx context.Context) (err error) {
			res, err = w.ledger.Settle(ctx, used)
			return err
		})
		if err == nil {
			w.say("settled %s %t", id, res.Late)
		} else if !w.expected(err) {
			w.say("wrong: settle %s: %v", id, err)
		}
	}
}
