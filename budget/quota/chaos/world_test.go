package chaos_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

const (
	// timeout is how long an operation of a ledger may take: the default of all ledgers.
	timeout = 500 * time.Millisecond
	// answerWithin is when a caller must have its answer at the latest. A journal adds its own
	// wait for the disk and asks its ledger more than once.
	answerWithin          = 5 * timeout
	answerWithinJournaled = 2 * answerWithin
	// ttl is how long holds and leases outlive a caller.
	ttl = 1500 * time.Millisecond
	// lapseMargin is how much later than that a test may see it, on a machine with much else
	// to do.
	lapseMargin = 2 * time.Second
	// keepWindows is more than there are in the longest run.
	keepWindows = 10_000
)

// The users of a tree, each with another limit that denies.
const (
	spender = "user=spender" // has a hard limit of credits a minute
	sprayer = "user=sprayer" // has a rolling limit of tokens
	opener  = "user=opener"  // may have some calls at a time
	anybody = "user=anybody" // has none
	team    = "team=all"     // counts the calls of all
)

var users = []string{spender, sprayer, opener, anybody}

const (
	creditsPerMinute = 1000
	tokensPerSecond  = 200
	tokensBurst      = 500
	callsAtATime     = 2
)

const unlimited = -1

func counter(key, window string, u quota.Unit) quota.Counter {
	return quota.Counter{Key: key, Window: window, Unit: u}
}

// The entries of a user of a tree. Amounts are 0.

func totalOf(user string) quota.Entry {
	return quota.Entry{Counter: counter(user, "", quota.Tokens), Kind: quota.Hold, Limit: unlimited, Ceiling: unlimited}
}

func minuteOf(user string, now time.Time) quota.Entry {
	e := quota.Entry{
		Counter: counter(user, quota.Minute.ID(), quota.Credits), Kind: quota.Hold, Limit: unlimited, Ceiling: unlimited,
		Spans: quota.Minute.Spans(now),
	}
	if user == spender {
		e.Limit = creditsPerMinute
	}
	return e
}

func callsOf(key string) quota.Entry {
	return quota.Entry{Counter: counter(key, "", quota.Calls), Kind: quota.Count, Limit: unlimited, Ceiling: unlimited}
}

func leaseOf(user string) quota.Entry {
	e := quota.Entry{Counter: counter(user, "", quota.ConcurrentTurns), Kind: quota.Lease, Limit: unlimited, Ceiling: unlimited}
	if user == opener {
		e.Limit = callsAtATime
	}
	return e
}

func rateOf(user string) quota.Entry {
	return quota.Entry{
		Counter: counter(user, quota.Rolling(time.Second).ID(), quota.Tokens), Kind: quota.Hold,
		Limit: tokensPerSecond, Rolling: true, Per: time.Second, Burst: tokensBurst,
	}
}

// request is what a call of a user asks for, by the clock of its caller.
func request(user string, now time.Time, tokens, credits int64) []quota.Entry {
	with := func(e quota.Entry, amount int64) quota.Entry {
		e.Amount = amount
		return e
	}
	all := []quota.Entry{
		with(minuteOf(user, now), credits), with(totalOf(user), tokens), with(callsOf(team), 1), with(leaseOf(user), 1),
	}
	if user == sprayer {
		all = append(all, with(rateOf(user), tokens))
	}
	return all
}

// minuteAt is where the entry of minuteOf is in a request.
const minuteAt = 0

// journaled puts a journal before a ledger.
func journaled(t testing.TB, ledger quota.Ledger, j *journal.Journal) *journal.Ledger {
	t.Helper()
	l, err := journal.New(ledger, j)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
