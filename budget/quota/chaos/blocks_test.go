package chaos_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/internal/servers"
)

const (
	// hotTree has one counter, that replicas lease blocks of.
	hotTree = "hot"
	// hotLimit is how much of it there is, and blockMax how large a block is.
	hotLimit = 15_000
	blockMax = 200
	// leaseMax is what one replica has leased at most: what its calls hold, the block that they take from,
	// and the next one.
	leaseMax = workers*100 + 2*blockMax
)

var blocksConfig = blocks.Config{
	Leased: func(string, quota.Counter) bool { return true }, Logger: silent,
	Max: quota.Amounts{quota.Tokens: blockMax}, TTL: ttl, Timeout: timeout,
}

// hotOf is the entry of the counter.
func hotOf(tokens int64) quota.Entry {
	return quota.Entry{Counter: counter(team, "", quota.Tokens), Kind: quota.Hold, Amount: tokens, Limit: hotLimit, Ceiling: unlimited}
}

// Replicas that lease blocks of a limit are killed, stand still, and lose their Redis. Together they
// spend no more than the limit and one lease for each time that a replica has lost its own; the ledger
// misses no more than what replicas had leased that were killed; and all leases lapse.
func TestReplicasWithBlocksStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{AppendOnly: "always"})
	net := servers.NewProxy(t, server.Addr())
	s := &stack{
		T: t, at: storeAt{"redis", net.Addr()}, direct: storeAt{"redis", server.Addr()},
		change: func(c *caller) { c.Trees, c.Blocks = []string{hotTree}, true },
	}
	s.begin()
	lost, killed := int64(0), int64(callers) // they are at the end
	counted := func(f fault, losses, kills int64) fault {
		return fault{f.name, func() { lost, killed = lost+losses, killed+kills; f.do() }}
	}
	faults := []fault{counted(s.killCaller(), 1, 1), counted(s.pauseCaller(), 1, 0)}
	for _, f := range s.serverFaults(server, net) {
		faults = append(faults, counted(f, callers, 0)) // at the most: each of them
	}
	s.havoc(havocFor(t, 3*time.Second), faults...)
	for _, p := range s.callers {
		p.end()
	}
	redisIsQuiet(t, server.Client())
	s.unwatch()
	s.watched.Wait()
	s.books.complaints(t)
	for dead := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		n := statusOf(t, s.ledger, hotTree, []quota.Entry{hotOf(0)})[0].Reserved
		if n == 0 {
			break
		}
		if time.Since(dead) > ttl+lapseMargin {
			t.Fatalf("%v after all replicas are gone, whose blocks live for %v, %d are still leased", time.Since(dead), ttl, n)
		}
	}

	told, asked := s.books.tokens()
	have := statusOf(t, s.ledger, hotTree, []quota.Entry{hotOf(0)})[0].Committed
	if most := hotLimit + (lost+killed)*leaseMax; told > most {
		t.Errorf("%d were spent of %d, at most %d may be after replicas have lost %d leases", told, hotLimit, most, lost+killed)
	}
	if least := told - killed*leaseMax; have < least || have > asked {
		t.Errorf("%d are counted, want %d to %d after %d replicas were killed, that were told of %d", have, least, asked, killed, told)
	}
	all, denied, settled, late := s.books.count()
	t.Logf("%d calls, %d denied, %d settled, %d of them late: %d were told to be spent, %d are counted", all, denied, settled, late, told, have)
	if settled < 10 {
		t.Error("nothing was tested")
	}
}

// tokens are how many are spent, as callers were told, and how many they have asked to spend.
func (b *books) tokens() (told, asked int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		if c.settled {
			told += c.used[0]
		}
		if c.settles {
			asked += c.used[0]
		}
	}
	return told, asked
}
