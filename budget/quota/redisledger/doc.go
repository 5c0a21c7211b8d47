// Package redisledger is a [quota.Ledger] in Redis: replicas that share it share their
// users' limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	ledger, err := redisledger.New(ctx, redisledger.Config{Client: client})
//
// Every operation is one script, which does all of it or nothing, by the clock of the
// server. It works with a single server, Sentinel and Cluster, from Redis 7.0 on; the
// tests run on 7.0.15, single and as a Cluster of three masters with a replica each. A
// server that is older, or a proxy that refuses EVAL or SCRIPT LOAD, is an error of [New].
// Scripts that the server has forgotten, by SCRIPT FLUSH or a restart, are sent again.
//
// # Where things are
//
// All keys of a tree have the same hash tag, so that a tree is in one place of a
// Cluster, and trees are spread over it. Counters of different keys of a tree are
// different keys of Redis, so that those of users who are gone expire by themselves.
// Every key is written together with the time at which it expires. What nobody touches
// for [Config].Forget is forgotten, whatever it is.
//
// Redis must keep what it is told: its maxmemory-policy should be noeviction, for any
// other one drops what was spent. How much is lost in a crash is what its appendfsync
// says, and in a failover what had not reached the replica.
//
// # What differs from quota.Memory
//
// Time is in microseconds: the ends of windows, and waits, are rounded up to them. Notes
// of reservations are not kept. The refund of a rolling counter is exact with up to 1024
// holds at a time; beyond, the oldest ones get nothing back.
//
// At most 32 expired reservations are swept by a script, before it decides anything, so
// that none takes long. While there are more in a tree, a Reserve that fits passes, and
// one that does not is asked again until all are swept: a hold past its expiry denies
// nobody. Until then the amounts that are told as reserved, besides those of Status, may
// include some of them.
//
// Amounts are exact in the whole range of int64. Scripts reckon in plain numbers below
// 2⁵² and otherwise in exact ones, which takes some times as long, and a further round
// trip when a tree first has such an amount.
//
// A top-up and a reset that the client has to send again, for want of an answer, is done
// once. A settlement that is sent again long after, when its reservation may have been
// forgotten, is told from one that was lost by quota.Settle's Writer and WriterSeq.
//
// # Round trips
//
// A Reserve, a Settle and a Release are one round trip each. What is rare takes a second
// one: the first use of a counter in a window, a tree in which something has expired, and
// about once an hour a key whose life is to be extended. The operations of a process that
// come at the same time share round trips, but up to four are under way at a time: a
// few callers never wait for each other.
package redisledger
