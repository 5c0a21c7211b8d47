#!lua
-- One step of the coordinator of a shared quota: share.Coordinator's Do, which says why
-- everything is as it is. Names are the same. All times are in microseconds.
--
-- Keys of a quota, after a prefix that ends in its hash tag and a colon:
--
--   q   a hash: m, all that is said of the quota and its dimensions; k1, k2, .. the ring
--       of cells of a dimension, oldest cell anywhere; l, the limits that replicas know;
--       c, the claims; g, what former lives of replicas had
--   r   a hash: the replicas, by name
--   w   a hash: of replicas that want more, what they have, want and weigh
--   x   a sorted set: when to look whether a replica has gone, at the earliest
--   e   a sorted set: when leases end
--
-- A step reads and writes what it needs: all replicas that want something only where
-- there is not enough for all of them.
--
-- ARGV: numbers, in the order in which they are read below; the replica's name; the
-- form of the dimensions, which must be the same for all.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local spread, pack, unpack = unpack, cmsgpack.pack, cmsgpack.unpack
local Q, R, W, X, E = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name = ARGV[2]

local args, arg = unpack(ARGV[1]), 0
local function take()
  arg = arg + 1
  return args[arg]
end

local WINDOW, BUCKET, SLOTS = 0, 1, 2
local LEASED, STATIC = 0, 2
local SECOND = 1000000
local SLACK = 1e-6
local BEAT = 2
local MAXWEIGHT = 1048576
local GONE = 64 -- how many replicas one step looks at, whether they have gone

local still, offset = take(), take()
local keep_for = take() -- of keys, in milliseconds
local ttl, late, poll, least, memory, learns = take(), take(), take(), take(), take(), take()
local epoch, seq, known, prev, since = take(), take(), take(), take(), take()
local mode, weight, alone, leave = take(), take(), take(), take() == 1
local D = take()

-- Dimensions, each with what is asked of it.
local dims = {}
for i = 1, D do
  local a = {
    i = i, shape = take(), cfglimit = take(), cfgburst = take(), window = take(), cell = take(), pace = take() == 1,
    has = take(), want = take(), need = take(), knows = take(), share = take(), left = take(), reset = take(),
  }
  local n = take()
  a.spends, a.first = n, arg
  arg = arg + 2 * n
  a.n = floor((a.window - 1) / a.cell) + 2
  dims[i] = a
end

-- The state of the quota ----------------------------------------------------------------

local raw
if still ~= 0 then
  raw = still
else
  local t = call('TIME')
  raw = t[1] * SECOND + t[2] + offset
end

local stored = call('HMGET', Q, 'm', 'c', 'g')
local m = stored[1] and unpack(stored[1])

-- Its dimensions may have been others. While somebody goes by them, they stay so.
local lost, tend = false, true
if m and m[1] ~= ARGV[3] then
  if call('ZCOUNT', E, raw, '+inf') > 0 then return {-1} end
  lost, m = true, nil
end

-- It may have been lost: what the replica has been told was at a later time than that of
-- the state, so that the server was put back to what it was before, by a failover or a
-- restart. Or a server that is short of memory has thrown out a part, which is looked at
-- now and then; then keys are told to live on, too.
if m then
  lost = known == m[2] and prev > m[5]
  tend = lost or m[15] == 0 or math.abs(raw - m[18]) >= SECOND
  if tend then
    local n = m[15]
    lost = lost or n ~= call('HLEN', R) or n ~= call('ZCARD', X) or n ~= call('ZCARD', E)
  end
end
if lost then m, stored = nil, {} end
if not m then call('DEL', Q, R, W, X, E) end

local coordinator, from, reading, last, stepped, peak, atpeak, heard
local learning, learned, virtual, order, changed, count, joined, look, tended
if m then
  coordinator, from, reading, last, stepped, peak, atpeak, heard = m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9]
  learning, learned, virtual, order, changed, count, joined = m[10], m[11], m[12], m[13], m[14], m[15], m[16]
  look, tended = m[17], m[18]
else
  coordinator, from, reading, last, stepped, peak, atpeak, heard = raw, raw, raw, raw, false, 0, 0, 0
  learning, learned, virtual, order, changed, count, joined = 0, false, 0, 0, false, 0, 0
  look = math.huge
end
if tend then tended = raw end

-- The clock never runs backwards: see share's clock.
local before = last
if stepped and raw >= peak then from, reading, stepped = peak, atpeak, false end
local now = reading + raw - from
if now < last - SECOND then
  if not stepped then
    stepped, atpeak, peak = true, last, from + last - reading
  end
  from, reading, now = raw, last, last
end
now = max(now, last)
last = now

local HEAD, EACH = 18, 11
for i = 1, D do
  local a, o = dims[i], HEAD + (i - 1) * EACH
  if m then
    a.out, a.limit, a.rate, a.burst, a.cur, a.sum = m[o + 1], m[o + 2], m[o + 3], m[o + 4], m[o + 5], m[o + 6]
    a.from, a.base, a.start, a.stale, a.wants = m[o + 7], m[o + 8], m[o + 9], m[o + 10], m[o + 11]
  else
    a.out, a.limit, a.rate, a.burst, a.cur, a.sum = 0, a.cfglimit, a.cfglimit, a.cfgburst, floor(now / a.cell), 0
    a.from, a.base, a.start, a.stale, a.wants = now, a.cfgburst, a.cfgburst, false, 0
  end
end

local claims = stored[2] and unpack(stored[2]) or {}
local ghosts = stored[3] and unpack(stored[3]) or {}
local claimsdirty, ghostsdirty = false, false
