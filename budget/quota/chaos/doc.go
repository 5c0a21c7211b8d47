// Package chaos holds no code but tests: whole stacks of ledgers with real servers and
// with callers that are processes of their own, while both are killed, stopped and cut
// off at random.
//
// Callers reserve, settle, release and abandon, and say what they are about to do and
// what was acknowledged. The test adds that up for itself, and then compares:
//
//   - After kill -9 of callers and servers, replies that are lost after the work is done, and
//     pauses, each counter is what was acknowledged: every settlement that a caller was told
//     of once, every other one at most once. Redis appends always, Postgres and SQLite commit to
//     the disk.
//   - After an unplanned failover of a cluster's master, what is missing is no more than
//     what was acknowledged since its replica had everything for the last time, and nothing is
//     missing once the journals were replayed since then.
//   - What callers hold that have died is free again when its TTL is over, by the clock of the
//     store.
//   - No limit is passed by more than what was used beyond a hold, or settled after the
//     hold had expired, which a ledger accepts because it is spent.
//     After a failover that is also what was lost in it, and with leased blocks one lease for each
//     time that a replica has lost its own.
//   - Every caller gets an answer: [quota.Ledger] operations end within their time limit,
//     whatever has become of the store. The tests allow five times as much, and do not count
//     time in which the caller's process itself did not run.
//   - The clocks of callers do not matter: some are almost a minute off.
//   - A disk that is full costs nothing that was acknowledged, and is no more than an
//     outage.
//   - An Enforcer goes by the failure policy of each limit, tells of an outage once at its start and
//     once at its end, and counts afterwards what passed meanwhile.
//
// Each run has another seed, which a test prints when it fails. HEADGATE_CHAOS_SEED=N
// repeats the choices of a run, though not its timing, and HEADGATE_CHAOS=10m makes havoc for so
// long in each test rather than for some seconds.
package chaos
