package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// books are what callers say that they have done, which is all that a test knows.
type books struct {
	mu sync.Mutex
	// mu guards all that follows.
	calls  map[string]*call
	wrong  []string
	failed map[string]int // how often an operation got no answer, by why
}

// call is one call as far as its caller has told.
type call struct {
	tree, user      string
	tokens, credits int64
	asked           time.Time
	denied          bool
	gone            bool // the ledger has taken nothing
	unheard         bool // the caller was not told that it was taken

	took     bool
	tookAt   time.Time
	minute   time.Time
	settles  bool
	settled  bool
	ended    time.Time // when it was settled
	late     bool
	used     [2]int64 // tokens and credits
	releases bool
}

func newBooks() *books { return &books{calls: map[string]*call{}, failed: map[string]int{}} }

// note notes a line of a caller.
func (b *books) note(line string) {
	word, rest, _ := strings.Cut(line, " ")
	var id string
	fields := strings.Fields(rest)
	if len(fields) > 0 {
		id = fields[0]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[id]
	fail := func(err error) {
		if err != nil {
			b.wrong = append(b.wrong, fmt.Sprintf("line %q: %v", line, err))
		}
	}
	switch word {
	case "asks":
		c = &call{asked: time.Now()}
		_, err := fmt.Sscan(rest, &id, &c.tree, &c.user, &c.tokens, &c.credits)
		fail(err)
		b.calls[id] = c
	case "took":
		var at int64
		_, err := fmt.Sscan(rest, &id, &at)
		fail(err)
		c.took, c.tookAt, c.minute = true, time.Now(), time.Unix(at, 0)
	case "denied":
		c.denied = true
	case "settles":
		c.settles = true
		_, err := fmt.Sscan(rest, &id, &c.used[0], &c.used[1])
		fail(err)
	case "settled":
		_, err := fmt.Sscan(rest, &id, &c.late)
		fail(err)
		c.settled, c.ended = true, time.Now()
	case "releases":
		c.releases = true
	case "released":
	case "failed":
		_, why, _ := strings.Cut(rest, ": ")
		b.failed[why]++
	case "late", "wrong:":
		b.wrong = append(b.wrong, line)
	}
}

// complaints are what callers have said that must not be.
func (b *books) complaints(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, line := range b.wrong {
		if t.Errorf("a caller says: %s", line); i == 20 {
			break
		}
	}
}

// place is a counter, in a window.
type place struct {
	tree string
	quota.Counter
	minute int64 // in Unix seconds; 0 is all time
}

// sums are how much counters have got.
type sums map[place]int64

// charge adds what a call has charged: what it has counted, and what it was settled to.
func (s sums) charge(c *call, counted, settled bool) {
	if counted {
		s[place{c.tree, callsOf(team).Counter, 0}]++
	}
	if settled {
		s[place{c.tree, totalOf(c.user).Counter, 0}] += c.used[0]
		s[place{c.tree, minuteOf(c.user, c.minute).Counter, c.minute.Unix()}] += c.used[1]
	}
}

// acknowledged are what counters must have at least, for callers were told so, and what they may
// have at most, for callers have asked for it.
func (b *books) acknowledged() (least, most sums) {
	b.mu.Lock()
	defer b.mu.Unlock()
	least, most = sums{}, sums{}
	for _, c := range b.calls {
		least.charge(c, c.took, c.settled)
		most.charge(c, c.took || !c.gone, c.settles)
	}
	return least, most
}

// between is what was acknowledged from one instant to another.
func (b *books) between(from, to time.Time) sums {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := sums{}
	for _, c := range b.calls {
		in := func(at time.Time) bool { return at.After(from) && at.Before(to) }
		all.charge(c, c.took && in(c.tookAt), c.settled && in(c.ended))
	}
	return all
}

// resolve asks what became of calls whose callers were not told, by ending them once more: what the
// ledger has taken it knows. Afterwards it is known of each call what it has charged, and
// acknowledged says that twice. It is asked of denied ones, too, as a request that was overtaken by its
// own repetition may be granted after that was denied.
//
// recorded are the settlements that are in journals, of which the ledger was told by those by now,
// and of no others; nil is where there are no journals.
func (b *books) resolve(t *testing.T, ledger quota.Ledger, recorded map[string]bool) (doubtful int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var mu sync.Mutex // guards doubtful
	in := func(n int) { mu.Lock(); doubtful += n; mu.Unlock() }
	asked := make(chan func() error)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ask := range asked {
				if err := ask(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for id, c := range b.calls {
		switch {
		case !c.took && !c.gone:
			asked <- func() error {
				if !c.denied {
					in(1)
				}
				err := again(func() error { return ledger.Release(context.Background(), c.tree, id) })
				c.unheard = true
				if c.took, c.gone = err == nil, err != nil; c.took {
					c.tookAt = time.Now()
				}
				if errors.Is(err, quota.ErrUnknownReservation) {
					err = nil
				}
				return err
			}
		case c.settles && !c.settled:
			asked <- func() error { in(1); return c.settleAgain(ledger, id, recorded) }
		}
	}
	close(asked)
	wg.Wait()
	return doubtful
}

// settleAgain finds out whether a call was settled whose caller was not told.
func (c *call) settleAgain(ledger quota.Ledger, id string, recorded map[string]bool) error {
	if recorded != nil && !recorded[id] {
		c.settles = false
		return nil
	}
	s := quota.Settle{ID: id, Tree: c.tree}
	s.Actual[quota.Tokens], s.Actual[quota.Credits] = c.used[0], c.used[1]
	var res quota.Settled
	err := again(func() (err error) { res, err = ledger.Settle(context.Background(), s); return err })
	switch {
	case err == nil && recorded != nil && !res.Repeated:
		return fmt.Errorf("%s is recorded in a journal, and the ledger was not told", id)
	case err == nil:
		c.settled, c.ended, c.late = true, time.Now(), res.Late
	default:
		return fmt.Errorf("settle %s, which was reserved: %w", id, err)
	}
	return nil
}

// again tries while there is no answer, on a machine with much else to do.
func again(do func() error) error {
	for begun := time.Now(); ; time.Sleep(pause) {
		err := do()
		if err == nil || !errors.Is(err, quota.ErrUnavailable) || time.Since(begun) > 20*time.Second {
			return err
		}
	}
}

// trees are those of all calls.
func (b *books) trees() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]bool{}
	for _, c := range b.calls {
		all[c.tree] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// standing is how the counters of all trees stand.
func (b *books) standing(t *testing.T, ledger quota.Ledger) sums {
	t.Helper()
	all := sums{}
	for _, tree := range b.trees() {
		put := func(p place, n int64) {
			if n != 0 {
				all[p] = n
			}
		}
		entries := []quota.Entry{callsOf(team)}
		for _, user := range users {
			entries = append(entries, totalOf(user))
		}
		for _, st := range statusOf(t, ledger, tree, entries) {
			put(place{tree, st.Counter, 0}, st.Committed)
		}
		for _, user := range users {
			for minute, n := range minutesOf(t, ledger, tree, user) {
				put(place{tree, minuteOf(user, time.Time{}).Counter, minute}, n)
			}
		}
	}
	return all
}

func statusOf(t *testing.T, ledger quota.Ledger, tree string, entries []quota.Entry) (all []quota.Status) {
	t.Helper()
	if err := again(func() (err error) { all, err = ledger.Status(context.Background(), tree, entries...); return err }); err != nil {
		t.Fatalf("status of %s: %v", tree, err)
	}
	return all
}

// minutesOf are the credits of a user, by minute.
func minutesOf(t *testing.T, ledger quota.Ledger, tree, user string) map[int64]int64 {
	t.Helper()
	for {
		entry := minuteOf(user, time.Now())
		now := statusOf(t, ledger, tree, []quota.Entry{entry})[0]
		var past []quota.Status
		err := again(func() (err error) {
			past, err = ledger.History(context.Background(), tree, entry.Counter, keepWindows)
			return err
		})
		if err != nil {
			t.Fatalf("history of %s: %v", tree, err)
		}
		if again := statusOf(t, ledger, tree, []quota.Entry{minuteOf(user, time.Now())})[0]; again.Span != now.Span {
			continue // another minute has begun
		}
		all := map[int64]int64{now.Span.Start.Unix(): now.Committed}
		for _, st := range past {
			all[st.Span.Start.Unix()] = st.Committed
		}
		return all
	}
}

// within compares how counters stand with what they must have at least and may have at
// most.
func (have sums) within(t *testing.T, when string, least, most sums) {
	t.Helper()
	places := map[place]bool{}
	for _, s := range []sums{have, least, most} {
		for p := range s {
			places[p] = true
		}
	}
	for p := range places {
		if n := have[p]; n < least[p] || n > most[p] {
			t.Errorf("%s: %v of %s in %s, minute %d: %d, want %d to %d", when, p.Unit, p.Key, p.tree, p.minute, n, least[p], most[p])
		}
	}
}

// bounds checks limits: what is spent is no more than a limit, and what was used beyond holds, and
// what was settled when the hold was gone, and what the store had lost meanwhile.
func (b *books) bounds(t *testing.T, elapsed time.Duration, lost sums) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	spent, beyond := sums{}, sums{}
	for _, c := range b.calls {
		if !c.settled {
			continue
		}
		add := func(p place, used, held int64) {
			spent[p] += used
			if c.late {
				beyond[p] += used
			} else {
				beyond[p] += max(used-held, 0)
			}
		}
		switch c.user {
		case spender:
			add(place{c.tree, minuteOf(c.user, c.minute).Counter, c.minute.Unix()}, c.used[1], c.credits)
		case sprayer:
			add(place{c.tree, rateOf(c.user).Counter, 0}, c.used[0], c.tokens)
		}
	}
	for p, n := range spent {
		limit, gone := int64(creditsPerMinute), lost[p]
		if p.Unit == quota.Tokens {
			limit = tokensBurst + int64(elapsed.Seconds()*tokensPerSecond) + 1
			gone = lost[place{p.tree, totalOf(sprayer).Counter, 0}]
		}
		if n > limit+beyond[p]+gone {
			t.Errorf("%d %v of %s in %s are spent, more than the limit of %d, the %d that had no hold, and the %d that were lost",
				n, p.Unit, p.Key, p.tree, limit, beyond[p], gone)
		}
	}
}

// failures is how many operations got no answer for a reason in which there is a word.
func (b *books) failures(word string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for why, times := range b.failed {
		if strings.Contains(why, word) {
			n += times
		}
	}
	return n
}

// count is how many calls there are, and how many of them were denied, settled, and settled
// late.
func (b *books) count() (all, denied, settled, late int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		all++
		if c.denied {
			denied++
		}
		if c.settled {
			settled++
		}
		if c.late {
			late++
		}
	}
	return all, denied, settled, late
}
