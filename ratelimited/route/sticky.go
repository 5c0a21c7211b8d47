package route

import (
	"context"
	"math"

	"github.com/headgate-go/headgate/ratelimited"
)

type stickyKey struct{}

// Sticky has calls made with ctx take the route of that key, as long as it works;
// see the package comment. A key is usually a session or a conversation, whose
// calls have the beginning of their prompts in common. It is hashed, and appears
// in no metric and no log. An empty key is none.
func Sticky(ctx context.Context, key string) context.Context {
	return context.WithValue(ratelimited.Pin(ctx), stickyKey{}, key)
}

// stickyOf is the hash of the key that was set for ctx; false if there is none.
func stickyOf(ctx context.Context) (uint64, bool) {
	key, _ := ctx.Value(stickyKey{}).(string)
	return hash(key), key != ""
}

// score says how much a key belongs to a route: to the one where it is highest.
// With u uniform in (0, 1), weight ÷ −ln u is the largest of its route with a
// probability in proportion to the weight (the logarithmic method of weighted
// distributed hash tables, Schindelhauer and Schomaker, SPAA 2005), and what
// happens to one route's score does not matter to the others' order, as in any
// rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 1998).
func score(key, route uint64, weight float64) float64 {
	u := (float64(mix(key^mix(route))>>11) + 0.5) / (1 << 53)
	return weight / -math.Log(u)
}

// hash is FNV-1a. It is the same in every process, so that all agree on where a
// key belongs.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix makes every bit of the result depend on every bit of x: the finalizer of
// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
