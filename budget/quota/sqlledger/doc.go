// Package sqlledger is a [quota.Ledger] in a SQL database, Postgres or SQLite, by
// database/sql. The program brings the driver: tests run with pgx/v5/stdlib and
// modernc.org/sqlite, and nothing of a driver is relied on but the codes of its errors.
//
//	db, err := sql.Open("pgx", dsn) // or "sqlite" and the name of a file
//	if err != nil {
//		return err
//	}
//	ledger, err := sqlledger.New(ctx, sqlledger.Config{DB: db})
//
// Any number of processes may have one on the same tables. SQLite is for those of one
// machine, on a file system of its own: a network's has no locks to rely on.
//
// # Transactions
//
// Each operation is all or nothing, and durable when it is answered. Operations that come
// while a transaction is under way are one transaction together, the next one, so that 64
// callers share a wait for the disk; one that finds nothing under way begins at once.
// SQLite has one transaction at a time, Postgres [Config].Transactions.
//
// A tree (see [quota.Reserve]) is changed by one transaction at a time, of whichever process.
// In Postgres that is a transaction-level advisory lock, and the tree's row in trees, whose
// version is another one after each change; transactions take the trees of a batch in rising
// order, and nobody waits for a second advisory lock while having one. In SQLite it is the lock
// of the whole database (BEGIN IMMEDIATE). So there are no deadlocks, whatever the order in which
// callers name their counters.
//
// A process remembers what is in trees that it has changed last. In Postgres, while nobody else
// has changed the tree, an operation is then a single statement, which writes everything if the
// version is still the one that was remembered, and nothing if it is not. Otherwise it is a
// transaction of a lock, a question and that statement. Transactions are READ COMMITTED in
// Postgres, whatever the database's default is: what is read after the lock must be what is there
// after the lock. In SQLite they are serializable, as all are.
//
// # The clock
//
// Postgres' clock decides in which window something falls and what has expired. A process knows
// it from the last answer, is behind by a round trip at most, and what it writes is refused if it
// is off by more than a second: as after a process was stopped. In SQLite, where all processes
// are on one machine, it is the machine's clock. A clock that is set back by more than two
// seconds has rolling counters go on from there; nothing refills twice.
//
// # Tables
//
// All have [Config].Prefix, and are in [Config].Schema in Postgres.
//
//   - counters: names of counters. Everything else knows them by number.
//   - windows: what was spent and is held, in each window of calendar counters.
//   - buckets: rolling counters.
//   - reservations: those that are open, and those that ended less than Config.Remember ago,
//     for repeats and late settlements.
//   - writers: the highest number that was settled of each writer (see [quota.Settle]).
//   - trees: their versions, in Postgres.
//   - calls and audit: for whom each reservation was made, and each change of a counter.
//     audit_log is a view of both for people to read.
//   - schema: which migrations were run.
//
// Instants are Unix nanoseconds. Names that no database may store, with a NUL or other bytes
// that are no UTF-8, are written as \x and hexadecimal digits. Keys are compared by a hash of
// their bytes, and so "a" and "A" are two keys under any collation.
//
// [New] makes and migrates the tables, in a transaction in which it is alone: any number of
// processes may start at once. Where programs may not change tables, [Migrate] is for one that
// may, and Config.NoMigrate for the others. Tables of a later version are an error.
//
// # The audit
//
// Rows of the audit are added in the transaction of what they tell, and never changed. Their
// sums are how the counters stand: [Ledger.Verify] adds up all of them, and what open
// reservations hold, and returns what differs, which is nothing unless somebody has changed the
// tables. [Ledger.Changes] are the rows about one counter.
//
// # What is kept for how long
//
// A ledger sweeps every [Config].SweepEvery, in transactions of at most 500 rows each, with
// as much rest after each as it took. It ends reservations that have expired, which
// count for nothing before that, too, and removes what is older than the configuration says. What old
// rows of the audit add up to is carried forward in one row for each window, so that the rest
// still reproduces every counter.
//
// [Ledger.Erase] removes a key's counters, reservations' hold on them and audit, and who is
// named in calls by this key or one within it. Amounts in the counters of others stay. The database
// may keep removed rows in its files for a while: see VACUUM of both, and PRAGMA secure_delete.
//
// # What survives what
//
//   - The process is killed: everything that was answered is there. What it holds expires after
//     its TTL. A call that was not answered was done or not; repeated with the same id, it is done
//     once.
//   - The server is killed, or a reply is lost: the same. The error matches
//     [quota.ErrUnavailable], within Config.Timeout, and the ledger goes on by itself when the
//     server does.
//   - The machine loses power: the same, as far as the database and its disk wait for each
//     other. The ledger sets PRAGMA synchronous = FULL in SQLite, with a write-ahead log, and
//     has Postgres wait for its disk where synchronous_commit is off. Postgres' fsync must be on.
//   - The disk is full: operations that need room fail and change nothing, others go on.
//   - A replica of Postgres takes over: what was not replicated is lost, unless
//     synchronous_commit waits for it. A [journal] tells it again.
//
// A pooler before Postgres may give each transaction another connection; pgx must then be told so
// by its default_query_exec_mode, as always.
//
// # Metrics
//
// With a [Config].Registerer, and [Config].Name as the label ledger of all:
//
//	headgate_store_operations_total{operation,outcome}         operations, each step of an Erase by itself
//	headgate_store_operation_seconds{operation}                their time, with the wait for a transaction
//	headgate_sqlledger_transaction_seconds                     of those that were committed
//	headgate_sqlledger_transaction_operations                  how many operations each was for
//	headgate_sqlledger_transaction_failures_total{kind}        most of which are tried again
//	headgate_sqlledger_waiting_operations                      that no transaction has begun for
//	headgate_sqlledger_expired_reservations_total              that nobody settled, released or renewed
//	headgate_sqlledger_sweeps_total{outcome}                   ok or failed
//	headgate_sqlledger_swept_rows_total{table}                 that were too old
//
// The first two are the same for all ledgers in a store. An outcome is ok, which a denial is
// too; unknown, of a reservation that is not there; timeout, unreachable or refused (by an
// error of the database), which are the store's fault; cancelled, by the caller; or closed.
// A timeout may be that of a caller's own deadline. A TopUp and a Reset count as status.
// Where operations take much longer than transactions, they wait for each other.
//
// The kind of a failure is contended (serialization failures, deadlocks, and locks that were
// not to be had), stale (others have changed the tree since it was read), duplicate (what was
// taken for new was there), disconnected, unsure (nobody knows whether it was committed) or
// failed. The first three cost a little time; many of them say that processes are in each
// other's way at one tree.
//
// # What it costs
//
// A reserve and settle over five limits (three calendar, two rolling), durable, against two bare
// UPDATE … RETURNING of the same five rows by as many callers at the same durability, in turns, in
// one run; in pairs a second, on two shared cores of a virtual machine with a disk that syncs
// in 0.3 to 3 ms, other work under way:
//
//	                                 1 caller       64 callers
//	SQLite, one tenant                376 (0.46×)    1,923 (2.8×)
//	SQLite, a tenant for each         349 (0.50×)    1,527 (3.0×)
//	Postgres, one tenant              149 (0.77×)    3,484 (6.0×)
//	Postgres, a tenant for each       410 (0.23×)    1,983 (0.69×)
//
// The last line is where bare updates are in nobody's way. There a pair costs 0.34 ms of processor time, client
// and server together, and the bare updates 0.24 ms; on processors that have much else to do, the
// 64 sessions of the bare updates get more of them than the ledger's two, and the ratio was 0.3 to
// 0.54. To measure it again:
//
//	go test -run '^$' -bench Pairs -benchtime 1s -count 3 ./budget/quota/sqlledger
//
// [journal]: https://pkg.go.dev/github.com/headgate-go/headgate/budget/quota/journal
package sqlledger
