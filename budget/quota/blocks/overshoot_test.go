package blocks_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// However long replicas are cut off: what passes above the limit is at most what each
// of them had leased when it was, besides what calls use above what they reserved; and
// all of it is booked in the end.
func TestALimitIsPassedByNoMoreThanWhatSeparatedReplicasHadLeased(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		c := &callers{
			world: newWorld(t, rapid.IntRange(2, 3).Draw(rt, "replicas"), blocks.Config{
				Share: 1, Min: quota.Amounts{quota.Tokens: 150},
			}),
			limit: 1000, fails: true,
		}
		c.run(rt, map[string]func(*rapid.T){
			"cut": func(t *rapid.T) {
				at := rapid.IntRange(0, len(c.replicas)-1).Draw(t, "link")
				leased := c.replicas[at].Stats().Leased[quota.Tokens]
				if c.excess == nil {
					c.excess = map[int]int64{}
				}
				c.excess[c.window()] += leased
				c.links[at].set(func(k *link) { k.cut = true })
				for range 3 {
					c.reserveAt(t, at)
				}
				pass(blocks.DefaultTTL + time.Second)
				for range 8 { // others get what has lapsed
					c.reserveAt(t, (at+1)%len(c.replicas))
				}
				c.links[at].set(func(k *link) { k.cut = false })
				pass(blocks.DefaultTTL) // until what is spent and held is booked
			},
		})
	})
}
