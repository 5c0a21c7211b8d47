package redisledger

import (
	"sync"
	"sync/atomic"
)

// maxExactTrees bounds how many trees with large amounts are remembered; more are
// found out anew, by a further round trip.
const maxExactTrees = 1024

// exactTrees are trees in which amounts were met that are too large for plain numbers.
type exactTrees struct {
	all   bool // tests only
	some  atomic.Bool
	mu    sync.Mutex
	trees map[string]bool // mu guards it
}

func (x *exactTrees) has(tree string) bool {
	if !x.some.Load() {
		return x.all
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.trees[tree]
}

func (x *exactTrees) add(tree string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.trees == nil || len(x.trees) >= maxExactTrees {
		x.trees = make(map[string]bool)
	}
	x.trees[tree] = true
	x.some.Store(true)
}
