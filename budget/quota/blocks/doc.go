// Package blocks lets a process reserve without a round trip: it leases a block of a
// limit from a ledger that several replicas share, and serves what it can from that.
//
// [New] puts a [Ledger] in front of any other [quota.Ledger]. It is one itself, so an
// Enforcer does not notice:
//
//	shared, err := blocks.New(store, blocks.Config{})
//	enforcer, err := quota.New(quota.Config{Ledger: shared, Limits: limits})
//
// By default it leases what is in the tree of [quota.Global], the limits of everybody
// together, which would otherwise be the one place of a store that every call goes to.
// [Config].Leased chooses others. What is not leased passes through.
//
// With a store in Redis that is how limits of the scope global are set up: every replica
// has a Ledger of its own over a redisledger of the same prefix, and its Enforcer goes
// through that. The trees of tenants keep their own slots and reserve in one step each;
// what is global is in one slot, which is asked a few times a second by each replica
// instead of twice by each call.
//
// # How
//
// A block is an ordinary reservation of the ledger underneath, with a hold of the
// block's size, in the window in which it was leased. It is as large as what was asked
// for in the last while of length Ahead, and at most a Share of what is left of the
// limit; where calls are rare it is what one call asks for. The next one is leased when
// a quarter is left. One operation at a time asks about a counter, and who needs more
// than there is waits for it, until the context ends. A block that is used up is settled
// to what was spent; what lies idle is returned after Idle, and what is more than two
// blocks at once. Blocks are renewed after a third of their TTL, and what was spent is
// settled by then, too.
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
//     have spent since the last renewal, is not held in the ledger any more when the
//     block lapses, and others may get it: at most what was leased, which is what calls
//     hold and a block. It is booked when the ledger can be reached again. (Where the
//     monotonic clock stands still while a machine is suspended, the same holds for a
//     replica that wakes up, until its next renewal.)
//   - What a process that was killed had spent and not settled is lost: less than a
//     block, and no more than it spent since the last renewal. What its calls held and
//     what was idle lapses after TTL.
//
// A rolling limit lets through as much more than its burst at a time as lies idle in
// blocks, because that was taken earlier; its rate holds.
//
// Somebody may be denied although something is left: what other replicas have leased and
// not used. That is at most two blocks each, and what their calls have given back within
// the last Idle, and it comes back when they have taken nothing for Idle, or a little
// later. Before anything is denied the ledger is asked for what is left, even if it is
// less than a block, down to what the call asks for. Only where so much has been spent
// that nothing others return can help, that is believed for Recheck without asking. What
// is soft or only observed is reported as above its limit a little early, as blocks count
// there.
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
//     store, does that underneath: New takes a ledger with a journal before it, and must
//     not be below one, which would charge again what this has forgotten.
//   - What is spent is in the ledger Idle after it was settled, or with the next renewal
//     while calls are under way; Flush does not return before it is. Thresholds are
//     crossed then, and at once where they are known here to be.
//   - Settlements of blocks have a Writer, so that after an outage that is longer than
//     the ledger remembers what has ended, nothing is charged twice. A ledger that keeps
//     no watermarks of writers may charge the blocks again then whose replies were lost.
//   - TopUp and Reset know what this process has spent. What another one has not
//     settled yet is not cleared.
//   - What a call gives back to a rolling limit comes back when all calls have ended
//     that have taken from the same block: at the latest when nothing was taken for
//     Idle, or when the block is as old as TTL. What is corrected downwards after that
//     stays taken.
//   - Corrections downwards to calendar limits reach the last 64 blocks of a window that
//     were settled; what is beyond is not given back.
//
// # Metrics
//
// With a [Config].Registerer, and [Config].Name as the label ledger of all, [Stats] are
// Prometheus metrics:
//
//	headgate_blocks_reservations_total{way}       local, or waited for a word from underneath
//	headgate_blocks_denied_total                  reservations that were denied
//	headgate_blocks_denied_busy_total             entries that were while others held something, perhaps in vain
//	headgate_blocks_round_trips_total{purpose}    for blocks, or passed on
//	headgate_blocks_requests_total{outcome}       blocks that were leased or refused
//	headgate_blocks_renewals_total                some of the round trips
//	headgate_blocks_failures_total                the same, of those for blocks
//	headgate_blocks_open_blocks                   that are leased now
//	headgate_blocks_units{unit,state}             held, spent, unanswered or idle
//	headgate_blocks_leased_units_total{unit}      what was in blocks when they were leased
//	headgate_blocks_returned_units_total{unit}    what was given back unspent
//	headgate_blocks_lapsed_total                  blocks that had ended while they were in use
//	headgate_blocks_late_total                    of these, whose spend was booked then
//	headgate_blocks_lost_total                    whose spend could not be booked
//
// Each reservation and its settlement would be two round trips without blocks. The sum of
// headgate_blocks_units over all states is how much more than a limit may be spent if the
// blocks of this replica lapse. Units of which nothing was ever leased have no series.
//
// # Outages
//
// While the ledger underneath fails, what is leased can still be spent, until TTL − Margin
// after it was renewed last. After that, reservations fail as those of the ledger do. An
// Enforcer that has found out that the ledger is away, and does not ask it for a while,
// still asks here for what needs no round trip: limits that are leased hold, and let pass,
// whatever their policy for failures is.
package blocks
