-- Names of counters. Everything else knows them by id, so that a key that is
-- erased here is gone everywhere. name is a hash of all five, owner one of tree and
-- key.
CREATE TABLE {p}counters (
	id     integer PRIMARY KEY AUTOINCREMENT,
	name   text NOT NULL UNIQUE,
	owner  text NOT NULL,
	tree   text NOT NULL,
	key    text NOT NULL,
	window_id text NOT NULL,
	unit   integer NOT NULL,
	per    integer NOT NULL, -- nanoseconds of a rolling counter; 0 of a calendar counter
	made   integer NOT NULL
);
CREATE INDEX {i}counters_owner ON {p}counters (owner);

-- What was spent and is held in each window of a calendar counter. Instants are
-- Unix nanoseconds; the least and the largest number are all time.
CREATE TABLE {p}windows (
	counter   integer NOT NULL,
	starts    integer NOT NULL,
	ends      integer NOT NULL,
	committed integer NOT NULL,
	reserved  integer NOT NULL,
	max       integer NOT NULL, -- the limit as it was given last; -1 is none
	crossed   integer NOT NULL, -- the highest threshold that was crossed, in percent
	resets    integer NOT NULL, -- how often it was reset
	PRIMARY KEY (counter, starts)
) WITHOUT ROWID;

-- Rolling counters, as what is missing from a full burst at an instant: units,
-- and parts of one, of which there are as many as per has nanoseconds.
CREATE TABLE {p}buckets (
	counter  integer PRIMARY KEY,
	units    integer NOT NULL,
	part     integer NOT NULL,
	at       integer NOT NULL,
	full_at  integer NOT NULL,
	reserved integer NOT NULL,
	mark     integer NOT NULL,
	charges  text NOT NULL -- what is missing consists of, while something is held
);

-- Reservations, until some time after their end. ref is a hash of tree and id.
CREATE TABLE {p}reservations (
	ref       text NOT NULL PRIMARY KEY,
	tree      integer NOT NULL, -- a hash
	call      integer NOT NULL,
	state     integer NOT NULL, -- 0 open, 1 settled, 2 released, 3 expired
	exclusive text, -- a hash of tree and value
	expires   integer NOT NULL,
	ended     integer NOT NULL,
	seq       integer NOT NULL,
	body      text NOT NULL -- what it holds, and its results, in numbers
);
CREATE INDEX {i}reservations_due ON {p}reservations (tree, expires) WHERE state = 0;
CREATE INDEX {i}reservations_exclusive ON {p}reservations (exclusive) WHERE state = 0 AND exclusive IS NOT NULL;
CREATE INDEX {i}reservations_ended ON {p}reservations (ended) WHERE state <> 0;

-- The highest number that was settled of each writer in each tree; writer is a hash
-- of both.
CREATE TABLE {p}writers (
	writer text NOT NULL PRIMARY KEY,
	seq    integer NOT NULL,
	at     integer NOT NULL
);

-- The audit: for whom each reservation was made, and what it and all else did to
-- counters. Rows are added, and go when they are old or somebody is erased.
CREATE TABLE {p}calls (
	id          integer PRIMARY KEY AUTOINCREMENT,
	at          integer NOT NULL,
	tree        text NOT NULL,
	reservation text NOT NULL,
	subject     text NOT NULL,
	turn        text NOT NULL,
	call        text NOT NULL,
	model       text NOT NULL,
	agent       text NOT NULL
);
CREATE INDEX {i}calls_subject ON {p}calls (subject) WHERE subject <> '';

-- committed, reserved and part are changes: their sums are how the counter stands
-- (of a rolling counter, committed and part are what is missing).
CREATE TABLE {p}audit (
	at        integer NOT NULL, -- no two changes of a tree are at the same time
	what      integer NOT NULL,
	counter   integer NOT NULL,
	starts    integer NOT NULL,
	call      integer NOT NULL,
	amount    integer NOT NULL,
	committed integer NOT NULL,
	reserved  integer NOT NULL,
	part      integer NOT NULL,
	crossed   integer NOT NULL, -- the threshold that was crossed with it, in percent
	flags     integer NOT NULL -- 1: the holds had expired, 2: the counter was above its limit then
);
CREATE INDEX {i}audit_counter ON {p}audit (counter, starts);

-- The audit as people read it.
CREATE VIEW {p}audit_log AS
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', a.at / 1e9, 'unixepoch') AS at,
	CASE a.what WHEN 1 THEN 'hold' WHEN 2 THEN 'count' WHEN 3 THEN 'lease' WHEN 4 THEN 'settle' WHEN 5 THEN 'adjust'
		WHEN 6 THEN 'release' WHEN 7 THEN 'expire' WHEN 8 THEN 'top-up' WHEN 9 THEN 'reset' WHEN 10 THEN 'carried'
		WHEN 11 THEN 'forgotten' END AS what,
	c.tree, c.key, c.window_id,
	CASE c.unit WHEN 0 THEN 'turns' WHEN 1 THEN 'concurrent_turns' WHEN 2 THEN 'calls' WHEN 3 THEN 'tokens'
		WHEN 4 THEN 'credits' WHEN 5 THEN 'money' END AS unit,
	CASE WHEN c.per = 0 AND a.starts > -9223372036854775808 THEN strftime('%Y-%m-%dT%H:%M:%SZ', a.starts / 1e9, 'unixepoch') END AS starts,
	a.amount, a.committed, a.reserved, a.crossed, a.flags & 1 <> 0 AS late, a.flags & 2 <> 0 AS over,
	k.reservation, k.subject, k.turn, k.call, k.model, k.agent
FROM {p}audit a
JOIN {p}counters c ON c.id = a.counter
LEFT JOIN {p}calls k ON k.id = a.call;
