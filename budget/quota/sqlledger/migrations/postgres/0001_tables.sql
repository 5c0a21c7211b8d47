-- Names of counters. Everything else knows them by id, so that a key that is
-- erased here is gone everywhere. name is a hash of all five, owner one of tree and
-- key.
CREATE TABLE {p}counters (
	id     bigint PRIMARY KEY,
	name   uuid NOT NULL UNIQUE,
	owner  uuid NOT NULL,
	tree   text NOT NULL,
	key    text NOT NULL,
	window_id text NOT NULL,
	unit   smallint NOT NULL,
	per    bigint NOT NULL, -- nanoseconds of a rolling counter; 0 of a calendar counter
	made   bigint NOT NULL
);
CREATE INDEX {i}counters_owner ON {p}counters (owner);
CREATE SEQUENCE {p}counter_ids;

-- Trees that are used. version is another one after each change of anything in the
-- tree but the audit: so a process knows whether what it remembers is still so.
CREATE TABLE {p}trees (
	tree    bigint PRIMARY KEY, -- a hash
	version bigint NOT NULL,
	before  bigint NOT NULL -- the version that it comes after
) WITH (fillfactor = 50);

-- What was spent and is held in each window of a calendar counter. Instants are
-- Unix nanoseconds; the least and the largest number are all time.
CREATE TABLE {p}windows (
	counter   bigint NOT NULL,
	starts    bigint NOT NULL,
	ends      bigint NOT NULL,
	committed bigint NOT NULL,
	reserved  bigint NOT NULL,
	max       bigint NOT NULL, -- the limit as it was given last; -1 is none
	crossed   integer NOT NULL, -- the highest threshold that was crossed, in percent
	resets    bigint NOT NULL, -- how often it was reset
	PRIMARY KEY (counter, starts)
) WITH (fillfactor = 70);

-- Rolling counters, as what is missing from a full burst at an instant: units,
-- and parts of one, of which there are as many as per has nanoseconds.
CREATE TABLE {p}buckets (
	counter  bigint PRIMARY KEY,
	units    bigint NOT NULL,
	part     bigint NOT NULL,
	at       bigint NOT NULL,
	full_at  bigint NOT NULL,
	reserved bigint NOT NULL,
	mark     bigint NOT NULL,
	charges  text NOT NULL -- what is missing consists of, while something is held
) WITH (fillfactor = 70);

-- Reservations, until some time after their end. ref is a hash of tree and id.
CREATE TABLE {p}reservations (
	ref       uuid PRIMARY KEY,
	tree      bigint NOT NULL, -- a hash
	call      bigint NOT NULL,
	state     smallint NOT NULL, -- 0 open, 1 settled, 2 released, 3 expired
	exclusive uuid, -- a hash of tree and value
	expires   bigint NOT NULL,
	ended     bigint NOT NULL,
	seq       bigint NOT NULL,
	body      text NOT NULL -- what it holds, and its results, in numbers
) WITH (fillfactor = 85);
CREATE INDEX {i}reservations_due ON {p}reservations (tree, expires) WHERE state = 0;
CREATE INDEX {i}reservations_exclusive ON {p}reservations (exclusive) WHERE state = 0 AND exclusive IS NOT NULL;
CREATE INDEX {i}reservations_ended ON {p}reservations (ended) WHERE state <> 0;

-- The highest number that was settled of each writer in each tree; writer is a hash
-- of both.
CREATE TABLE {p}writers (
	writer uuid NOT NULL PRIMARY KEY,
	seq    bigint NOT NULL,
	at     bigint NOT NULL
);

-- The audit: for whom each reservation was made, and what it and all else did to
-- counters. Rows are added, and go when they are old or somebody is erased.
CREATE TABLE {p}calls (
	id          bigint PRIMARY KEY,
	at          bigint NOT NULL,
	tree        text NOT NULL,
	reservation text NOT NULL,
	subject     text NOT NULL,
	turn        text NOT NULL,
	call        text NOT NULL,
	model       text NOT NULL,
	agent       text NOT NULL
);
CREATE INDEX {i}calls_subject ON {p}calls (subject COLLATE "C") WHERE subject <> '';
CREATE INDEX {i}calls_at ON {p}calls USING brin (at) WITH (autosummarize = on);
CREATE SEQUENCE {p}call_ids INCREMENT BY 1024; -- each process takes as many at once

-- committed, reserved and part are changes: their sums are how the counter stands
-- (of a rolling counter, committed and part are what is missing).
CREATE TABLE {p}audit (
	at        bigint NOT NULL, -- no two changes of a tree are at the same time
	what      smallint NOT NULL,
	counter   bigint NOT NULL,
	starts    bigint NOT NULL,
	call      bigint NOT NULL,
	amount    bigint NOT NULL,
	committed bigint NOT NULL,
	reserved  bigint NOT NULL,
	part      bigint NOT NULL,
	crossed   smallint NOT NULL, -- the threshold that was crossed with it, in percent
	flags     smallint NOT NULL -- 1: the holds had expired, 2: the counter was above its limit then
);
CREATE INDEX {i}audit_counter ON {p}audit (counter, starts);
CREATE INDEX {i}audit_at ON {p}audit USING brin (at) WITH (autosummarize = on);

-- The audit as people read it.
CREATE VIEW {p}audit_log AS
SELECT to_timestamp(a.at / 1e9) AS at,
	CASE a.what WHEN 1 THEN 'hold' WHEN 2 THEN 'count' WHEN 3 THEN 'lease' WHEN 4 THEN 'settle' WHEN 5 THEN 'adjust'
		WHEN 6 THEN 'release' WHEN 7 THEN 'expire' WHEN 8 THEN 'top-up' WHEN 9 THEN 'reset' WHEN 10 THEN 'carried'
		WHEN 11 THEN 'forgotten' END AS what,
	c.tree, c.key, c.window_id,
	CASE c.unit WHEN 0 THEN 'turns' WHEN 1 THEN 'concurrent_turns' WHEN 2 THEN 'calls' WHEN 3 THEN 'tokens'
		WHEN 4 THEN 'credits' WHEN 5 THEN 'money' END AS unit,
	CASE WHEN c.per = 0 AND a.starts > -9223372036854775808 THEN to_timestamp(a.starts / 1e9) END AS starts,
	a.amount, a.committed, a.reserved, a.crossed, a.flags & 1 <> 0 AS late, a.flags & 2 <> 0 AS over,
	k.reservation, k.subject, k.turn, k.call, k.model, k.agent
FROM {p}audit a
JOIN {p}counters c ON c.id = a.counter
LEFT JOIN {p}calls k ON k.id = a.call;
