// Package blocks lets a process reserve without a round trip: it leases a block of a
// limit from a ledger that several replicas share, and serves what it can from that.
//
// [New] puts a [Ledger] in front of any other [quota.Ledger]. It is one itself, so an
// Enforcer does not notice:
//
//	shared, err := blocks.New(redisLedger, blocks.Config{})
//	enforcer, err := quota.New(quota.Config{Ledger: shared, …})
//
// By default it leases what is in the tree of [quota.Global], the limits of everybody
// together, which would otherwise be the one place of a store that every call goes to.
// [Config].Leased chooses others. What is not leased passes through.
//
// # How
//
// A block is an ordinary reservation of the ledger underneath, with a hold of the
// block's size, in the window in which it was leased. It is as large as what was asked
// for in the last while of length Ahead, and at most a Share of what is left of the
// limit; where calls are rare it is what one call asks for. More is leased when a quarter of
// that is left. One operation at a time asks about a counter, and who needs more than
// there is waits for it until the context ends. A block that is used up is settled to
// what was spent; what lies idle is returned after Idle. Blocks are renewed after a
// third of their TTL, and then what was spent is settled, too.
//
// At the edge of a window the next block is of the new one, by the ledger's clock. What
// calls hold stays in the window in which they took it, and is settled there, however
// late.
//
// # What the bounds are
//
// Whatever is given out here was taken from the ledger before, so that all replicas
// together do not pass a limit. There are three exceptions:
//
//   - A call that uses more than it has held is spent already, as with any ledger.
//   - A replica that cannot renew its blocks stops spending from each before it
//     ends: TTL − Margin after its own request was sent, by its own monotonic clock, so
//     that clocks need not agree. What its calls under way still hold, and what they
//     have spent since the last renewal, is no longer held in the ledger when the block
//     lapses, and others may get it: at most what was leased, which is one block
//     besides what calls hold. It is booked when the ledger can be reached again.
//   - What a process that was killed had spent and not settled is lost: less than
//     one block, and no more than it spent since the last renewal. What its calls held
//     and what was idle lapses after TTL.
//
// A rolling limit lets through as much more than its burst at a time as lies idle in
// blocks, as that was taken earlier; its rate holds.
//
// Somebody may be denied although something is left: what other replicas have leased and
// not used, which is less than a block each. It comes back when they have not used it for
// Idle, or a little later. Before anything is denied the ledger is asked for what is left,
// even if it is less than a block, and down to what the call asks for. Only where so much
// has been spent that what others may return cannot help, that is believed for Recheck.
// What is soft or only observed is reported as above its limit a little early, as blocks
// count there.
//
// # What is different from other ledgers
//
//   - Leases of what is under way at a time (turns) pass through: they are few, and the
//     last one should go to whoever asks for it, on whatever replica. A reservation that
//     has entries of both kinds makes a round trip.
//   - A Check passes if there was room within the last Ahead.
//   - A reservation is known to the process that made it, with the entries that it had
//     then, as long as it is remembered ([Config].Remember): others cannot settle it.
//     Whoever replays settlements of a process that has died, or audits the writes of a
//     store, does that underneath.
//   - What is spent is in the ledger within Idle after it was settled, or with the next
//     renewal while calls are under way. Flush does not return before it is. Thresholds
//     are crossed then, at once if they are known here to be.
//   - TopUp and Reset know what this process has spent. What another one has not
//     settled yet is not cleared.
//   - What calls give back to a rolling limit may come back up to Idle later, and as if
//     it had been taken earlier than it was.
//   - Corrections downwards reach the last blocks of a window that were settled, 64 of
//     them; what is beyond is not given back.
//
// While the ledger underneath fails, what is leased can still be spent, until TTL − Margin
// after it was renewed last. After that, reservations fail as those of the ledger do.
package blocks
