// Package redisbudget shares a provider's quota between the replicas of a program through
// Redis: all of them together never ask for more than the provider has, and what one does
// not use the others have.
//
//	sharing, err := redisbudget.New(ctx, redisbudget.Config{
//		Client: redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true}),
//		Name:   "gemini-2.5-flash",
//	})
//	gate, err := ratelimited.NewGate(ratelimited.Config{
//		Slots:   200, // of all replicas together, as are the limits
//		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 10_000, InputTokensPerMinute: 8_000_000}),
//		Share:   sharing,
//	})
//
// Everything else stays as it is. Inside each replica the gate keeps its fair order; it
// never waits for Redis: a goroutine of its own asks for credit and hands it to the gate.
// How credit is granted, dated, given back and lost is what package share describes, and
// this package keeps share's coordinator in Redis: one step of it is one script, over all
// limits and slots at once. The script is tested to answer what share.Coordinator does.
//
// # Modes
//
// In leased mode, the default, a replica holds about one second of its recent demand, so
// that most calls need no round trip: a call takes microseconds, and Redis sees some
// requests a second of a busy replica, however many calls it makes. In central mode each
// call waits for a round trip; nothing is held in stock, which suits few, large calls. In
// static mode each replica has an equal part, whether it uses it or not, and only tells
// that it is there.
//
// # When Redis does not answer
//
// Each request has a time limit (Config.Timeout), and comes again after a time that grows to
// a second, half of it random. Meanwhile a gate uses what it was granted. When that lease is
// over (Config.TTL) it goes on with Config.Fallback (0.8) of an equal part of the quota:
// one of as many as there were last, and Config.Replicas at least. That is logged once when
// it begins and once when it ends, and metered: headgate_share_store_up and
// headgate_share_fallback, by gate. A replica that is started meanwhile waits; with
// Config.Replicas for as long as windows may remember what others have used, and then it
// has its part, too.
//
// When all replicas are cut off, they stay within the quota together. One that is cut off
// alone uses its part beside what the others are granted: up to Fallback/R of the quota too
// much. A negative Fallback forbids that, and stops calls instead.
//
// # When Redis has forgotten
//
// A quota that was lost is noticed and built up again from what replicas say: for one TTL
// nothing new is granted, and then it goes on. So it is
//
//   - when a replica knows a quota that Redis does not: it was flushed, or restarted without
//     its data;
//   - when a replica was told of a later time than Redis knows of: a failover to a replica
//     that lagged behind, or a restart with an older file;
//   - when a part of the keys is gone, because memory ran out;
//   - when nothing is known and the server has been up for less than a TTL and a second. A
//     quota that is used for the first time on a server that was just started begins so, too.
//
// Only who starts anew right after somebody has flushed a server that goes on running is
// not told apart from the first one ever: until one of the others is heard of, which is
// within three quarters of a TTL, it may be granted what they have.
//
// # Bounds
//
// What is promised is what package share promises, under these conditions: requests
// reach the provider within Config.Late after a lease, which is 2 s; calls use no more than
// they were held at, or what they use more is spent before anybody knows (Headroom is for
// that); nobody else uses the quota; and slots are those that gates know of: a provider may
// count the end of a call later than its client sees it.
//
// # What it costs
//
// A step takes about 0.1 ms of Redis, whether there are ten replicas or a thousand. Only
// where they want more than there is does the script look at all that want something: 0.3
// ms for 100 of them, 2 ms for 1,000. Each quota has five keys, some hundred bytes for a
// replica and some for each cell of a window; all are in one slot of a Cluster, and expire
// five minutes and two windows after they were used last. Redis 7.0 or later is needed, and
// a user who may run EVAL, EVALSHA and SCRIPT LOAD, and TIME and INFO in scripts.
//
// Replicas of one quota must name the same dimensions: that many limits, of the same shapes,
// windows and cells, or those that come later get [ErrOtherLimits] until the others are
// gone; what was spent before is forgotten then. The limits themselves may differ, as they
// do while new ones are rolled out; the smallest is in force.
package redisbudget
