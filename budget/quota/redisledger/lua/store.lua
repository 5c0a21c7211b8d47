-- Keys of a tree, after a prefix that ends in its hash tag and a colon:
--
--   x          when the open reservations expire: a sorted set of their keys, and of
--              nothing, which never does and has the set stay
--   r:<id>     a reservation
--   e:<value>  when the reservation that is exclusive with a value expires, and its key
--   a:<key>    the counters of a key, its account: since when and until when there are
--              any, until when nothing that is held of them expires, and a slot for each
--   h:<key>    the past windows of its calendar counters: a hash, by the name of a slot
--   w:<writer> the highest number of a writer's settlements
--   o:<id>     a top-up or a reset that was made
--
-- A slot is its name of eight bytes, 48 bytes, and of a bucket its charges. All bytes of
-- a name are 128 and above, and the last byte of any number is below: so a name is found
-- nowhere else.
--
-- A reservation is what is said of all of it; what Go says of it: its keys, entries, and
-- the names of their counters; flags; its slots without charges, as they were when they
-- had been taken; since when its accounts are; and how they were settled, if they were.
-- What Go reads of it is what a repeat is told.
--
-- All times are in microseconds. A script finds out all that it writes for a
-- reservation before it writes anything.
--
-- Most of what a script costs is to make strings, by their length, tables and functions.
-- So what happens always is written out where it happens, with as few of them as
-- possible, and before any function is made; and what hardly ever does is a function
-- that makes the functions.
local call, find, sub, byte, concat = redis.call, string.find, string.sub, string.byte, table.concat

-- What time it is, and how long things are kept; scripts are told in different ways.
local now, remember, forget, keep

local HOLD, COUNT, LEASE, CHECK = 0, 1, 2, 3 -- kinds of entries
-- The flags of an entry are its kind, and 4 rolling, 8 soft, 16 observed, 32 unlimited and
-- rolling, 64 with thresholds that count. Those of what is held are 1 passed (nothing is
-- taken), 2 over, and 4 erased.
local PASSED, OVER, ERASED = 1, 2, 4
-- States of reservations. One that was settled simply is its version, state, and number,
-- all of it as it was before, what was used, by unit, and its slots as they were then; see
-- plain.lua.
local OPEN, SETTLED, RELEASED, EXPIRED, SETTLED_SIMPLY = 0, 1, 2, 3, 4
local SPARE = 3600000000                            -- keys live that much longer
local DAY = 86400000000

local ACCOUNT = '<c8ll'               -- since, till, first: 24 bytes
local PERIOD = '<llLLc8HHI'        -- from, to, used, held, limit, crossed, epoch, 0
local PERIOD_SLOT = '<c8llLLc8HHI' -- the same after its name
local BUCKET = '<LLlLlII'        -- units, part, at, held, mark, holds, length of charges
local BUCKET_SLOT = '<c8LLlLlII' -- the same after its name

-- The parts of a reservation:
-- version, state, late, whether there are flags, sequence number in two halves; since
-- when it is, when it expires, how long it waits; accounts, entries, entries and others,
-- where begin what Go says of entries, flags, and slots
local RECORD = '<BBBBIilllHHHIII'
local NAMES = '<Hc0Hc0Hc0Hc0Hc0Hc0Hc0' -- of an exclusive value, and of up to six accounts
local ENTRY = '<HBBLB'                -- account, flags, unit, amount, how many thresholds
local RATE = '<xxxxxxxxxxxxxxxxLL'   -- (limit, burst), rate, den
local PERIOD_ENDED = '<BLLHHILLH' -- flags, used, kept, (crossed), epoch, 0; used, held, crossed: 43
local BUCKET_ENDED = '<BlLLLlL'  -- flags, mark, used; units, part, at, held: 49
local CHARGE = '<LLlI' -- units, part, mark, how many hold: 28 bytes
local CHARGES = 28 * 1024  -- beyond so many the oldest become one
