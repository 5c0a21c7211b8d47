// Package journal keeps a durable record of what was settled, in files of this
// process, so that a ledger elsewhere need not be relied on to remember it: after a
// crash of the program, and after a failover in which the store has lost writes that
// it had acknowledged, the ledger is told again.
//
// [New] wraps any [quota.Ledger]:
//
//	j, err := journal.Open("/var/lib/agents/journal", journal.Config{})
//	ledger, err := journal.New(redis, j)
//	enforcer, err := quota.New(quota.Config{Ledger: ledger, …})
//
// The ledger must remember reservations across processes. Blocks that are leased from it
// come last: blocks.New(ledger, …).
//
// A settlement is written and made durable (fsync, one for all callers that wait)
// before the ledger is told of it, and acknowledged after the ledger has answered. So is
// what a reservation has counted for good, once the ledger has granted it and before
// the caller knows. Whatever is not acknowledged when the program starts again is told
// to the ledger then; see [Ledger.Recover]. [Ledger.Replay] tells it everything since
// an instant, acknowledged or not.
//
// # Why nothing is charged twice
//
// A ledger remembers the id of a reservation for a time after its end
// (Config.Remember), and each settlement takes effect once for an id. So whatever it
// still knows can be told again without harm. What it does not know within that time was
// never settled there, or was lost, and is booked anew: as a reservation with the same
// id, in the windows in which it was taken the first time, that nothing denies, for it
// is spent; so that a further repeat finds it known. What it does not know after that
// time it may have charged and forgotten. Such a settlement is doubtful, and is not
// booked: it is counted, logged, and left in the files for whoever wants to decide
// (see [All]). For the same reason a Replay since an earlier instant is refused.
//
// Rolling counters are not booked anew. A rate is about what passes now, and what is
// missing from a bucket since an outage has refilled by the time that it ends.
//
// # When to replay
//
// A store that has failed over says nothing of it: each process must notice by itself, and
// replay its own journal. There are three occasions: its start; the end of an outage, which
// an Enforcer publishes as a [quota.OutageEnded]; and a server that was replaced while the
// process had nothing to ask of it, or the client sent again what had failed. The Redis
// ledger tells the last (redisledger.Config.Replaced) if somebody calls its Healthy every
// few seconds. since is when the outage began, or the server was seen last, less the time
// for which a replica may be behind. A Replay asks the ledger once for each settlement
// since then, and once for each reservation that is open; what the ledger knows it answers
// as repeated. Replay takes its time: call it in a goroutine, and not in the listener of a
// Bus. examples/support does all of that.
//
// # What is in the files
//
// Ids, counters and amounts, and the [quota.Note] of the reservation; never text of a
// call. Files are of one process: a directory has a lock, and each replica needs a
// directory of its own, on a disk that outlives it. [Read] and [All] read them, for an
// audit. They are removed when all that is in them is acknowledged and older than
// Config.Keep. Nothing that is erased from the ledger is booked again; the ids of
// those who were erased leave the directory with the files that they are in.
//
// # When the disk fails
//
// A settlement that cannot be written goes on to the ledger without, as the ledger is
// where it counts: that is counted, logged once when it begins and once when it ends, and
// reported by Healthy. The same goes for a disk that takes longer than
// Config.SyncTimeout, and for a journal of Config.MaxBytes of which nothing can be
// removed.
package journal
