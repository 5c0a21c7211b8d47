// Package redisledger is a [quota.Ledger] in Redis: replicas that share it share their
// users' limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	ledger, err := redisledger.New(ctx, redisledger.Config{Client: client})
//
// It works with whatever a redis.UniversalClient stands for: a single server, a master
// that Sentinel finds, or a Cluster, from Redis 7.0 on. The tests run on 7.0.15: the
// conformance suite on a single server and on a Cluster of three masters with a replica
// each, and a failover by Sentinel and by a Cluster. A server that is older, and one, a
// proxy, or a user's rights that refuse EVAL or SCRIPT LOAD, are an error of [New].
// Scripts that the server has forgotten, by SCRIPT FLUSH or a restart, are sent again.
//
// # Atomicity and time
//
// Every operation is one script, which does all of it or nothing. A script finds out all
// that it will write before it writes anything. Reservations that wait for each other share
// a script, and so do settlements: up to 16, each with its own answer and its own error. All
// trees can share one on a single server, where INFO says that it is one; elsewhere, only
// what is of one tree. Exceptions are operations about many
// things: each 32 ids of a Renew, each 256 entries of a Status, and each 32 reservations
// that an Erase looks through are a step by themselves.
//
// The clock of the server decides (TIME, in a script), in microseconds: the ends of
// windows, and waits, are rounded up to them. Callers' clocks do not matter, but for the
// windows around their time that they send. After a failover the clock is the new
// master's; one that is behind has holds live that much longer, and windows end later.
//
// # Where things are
//
// All keys of a tree have the same hash tag, so that a tree is in one place of a
// Cluster, and trees are spread over it. With a prefix and a tree t they are:
//
//	headgate:{t}:a:<key>    the counters of a key of the tree: a user, a team, a tenant
//	headgate:{t}:h:<key>    their past windows, for History and late settlements
//	headgate:{t}:r:<id>     a reservation, and how it was settled
//	headgate:{t}:x          when open reservations expire, a sorted set
//	headgate:{t}:e:<value>  who holds an exclusive value
//	headgate:{t}:w:<name>   the highest number of a writer's settlements
//	headgate:{t}:o:<id>     a top-up or a reset that was made
//	headgate:health         written by Healthy
//
// The format of what they hold is in lua/store.lua, and has a version: a ledger refuses
// reservations of another one.
//
// Every key is written together with the time at which it expires. A user who does not
// come back costs nothing after as much time as past windows are kept for
// ([Config].KeepWindows); what nobody touches for [Config].Forget is forgotten, whatever
// it is. A reservation takes 1 kB with five entries, and 1.4 kB once it is settled, until
// [Config].Remember after its end.
//
// A tree is in one slot, and one server does all of it: some 20 000 reservations a second
// are what a core of it can do. A limit that every tenant shares (quota.Global) has a tree
// of its own, which every call of every replica would go to: put package [blocks] before
// the ledger, blocks.New(ledger, blocks.Config{}), so that each replica leases blocks of it
// and spends them without asking. Its documentation says by how much such a limit may be
// passed then.
//
// # What may be lost
//
// Redis must keep what it is told: its maxmemory-policy should be noeviction, for any
// other one drops what was spent. A server that is full is unavailable, and no half of an
// operation is written. How much is lost in a crash is what its appendfsync says: nothing
// that was acknowledged with always, a second with everysec.
//
// Replication is asynchronous. A replica that takes over has not got what the old master
// had acknowledged last: reservations, which are unknown then, and what was settled. So
// after an unplanned failover counters are behind by no more than what the old master
// acknowledged after the last write that reached the replica. To have that back, wrap the
// ledger with package journal, and call its Ledger.Replay since an instant before the
// outage, within [Config].Remember: what the new master knows stays as it is, and what it
// does not know is booked anew, in the windows in which it was spent. Until then the
// limits let pass as much more as was lost.
//
// A process that is idle in a failover has no operation that fails, and a client may have
// sent one again that did: have Healthy called every few seconds, and [Config].Replaced
// says when another master answers, and since when to replay, less the time for which a
// replica may be behind and a master that is cut off may go on to answer.
//
// # Bounds
//
// A limit is never passed by what is reserved, over any number of ledgers and callers; it
// is by what is settled above its reservation, which is spent already, by soft and
// observed entries, and by what was lost in a failover and is not replayed yet.
//
// Each operation ends within [Config].Timeout, 500 ms by default, with an error that
// matches [quota.ErrUnavailable] if there was no answer. It may have been done: repeating
// it with the same id is safe, and gives the first result. A client that sends an
// operation again by itself, for want of an answer, changes nothing either.
//
// A settlement that is sent again long after, when its reservation may have been
// forgotten, is told from one that was lost by quota.Settle's Writer and WriterSeq. The
// number of a writer is kept for a day and [Config].Remember.
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
// # What differs from quota.Memory
//
// Notes of reservations are not kept. The refund of a rolling counter is exact with up to
// 1024 holds at a time; beyond, the oldest ones get nothing back.
//
// # Round trips
//
// A Reserve, a Settle and a Release are one round trip each, however many limits there
// are. What is rare takes a second one: the first use of a counter in a new window, a tree
// in which something has expired, and about once an hour a key whose life is to be
// extended. The operations of a process that come at the same time share round trips, and
// scripts where they can, but up to four round trips are under way at a time: a few callers
// never wait for each other. Who leaves while others wait has not asked; who leaves while
// the server is being asked may have been heard, as ever.
//
// # Metrics
//
// With a [Config].Registerer, and [Config].Name as the label ledger of all:
//
//	headgate_store_operations_total{operation,outcome}       scripts that were to run, and Healthy
//	headgate_store_operation_seconds{operation}              their time, with the wait for a round trip
//	headgate_redisledger_round_trips_total                   which scripts that come together share
//	headgate_redisledger_waiting_operations                  scripts that wait for one
//	headgate_redisledger_repeated_scripts_total{reason}      that ran once more in an operation
//	headgate_redisledger_resent_scripts_total                that the server did not know any more
//
// The first two are the same for all ledgers in a store. An outcome is ok, which a denial is
// too; unknown, of a reservation that is not there; timeout, unreachable or refused (by an
// error of the server, such as one that its memory is full), which are the store's fault;
// cancelled, by the caller; or closed. A timeout may be that of a caller's own deadline. A
// TopUp and a Reset count as status. A reason is rare (there is something to be done that the
// fast script leaves to the other), large (amounts), or expired: more reservations had
// expired than one run sweeps.
//
// # What it costs
//
// Medians of runs over loopback, on two cores which the server and the callers shared (Redis
// 7.0.15, Go 1.26, nothing on disk), against a script that does nothing and against AllowN
// of go-redis/redis_rate, which takes from one limit and gives nothing back; the time of all
// callers divided by the calls. A lone caller's cores fall asleep in between, which is most
// of its time; they did not in the runs of the second line. The last line is of another run:
//
//	                           no-op   AllowN   Reserve, 5 limits   Settle
//	1 caller                   42 µs   104 µs              148 µs   144 µs
//	1 caller, cores awake      14 µs    28 µs               55 µs    62 µs
//	64 callers                 13 µs    20 µs               34 µs    34 µs
//	1 caller, 1 ms away       1.3 ms   1.3 ms              1.4 ms   1.4 ms
//
// Some 22 µs of a Reserve's and 27 of a Settle's are processor time of the server where they
// share scripts, and a fifth more where they are alone: half of it is what a script reckons,
// which makes texts, and hashes them byte by byte; the other half is the seven or eight
// commands that it gives. So a Reserve over five limits takes one caller over loopback 1.0 to
// 1.7 times as long as one AllowN, 1.9 to 2.4 times where the cores are awake, and about as
// long over a network; 64 callers make 0.34 to 0.49 of the Reserves, and 0.29 to 0.47 of the
// Settles, that they make of scripts that do nothing. To have the
// numbers of another machine:
//
//	go test -run xxx -bench ReserveAndSettle -count 3 ./budget/quota/redisledger
//
// [blocks]: https://pkg.go.dev/github.com/headgate-go/headgate/budget/quota/blocks
package redisledger
