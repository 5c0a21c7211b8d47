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
if m and m[1] ~= ARGV[3] then return {-1} end

-- A server that is short of memory may have lost a part of it, which is as good as all.
local lost = false
if m then
  local n = m[15]
  lost = n ~= call('HLEN', R) or n ~= call('ZCARD', X) or n ~= call('ZCARD', E)
end
if lost then m, stored = nil, {} end
if not m then call('DEL', Q, R, W, X, E) end

local coordinator, from, reading, last, stepped, peak, atpeak, heard
local learning, learned, virtual, order, changed, count, joined
if m then
  coordinator, from, reading, last, stepped, peak, atpeak, heard = m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9]
  learning, learned, virtual, order, changed, count, joined = m[10], m[11], m[12], m[13], m[14], m[15], m[16]
else
  coordinator, from, reading, last, stepped, peak, atpeak, heard = raw, raw, raw, raw, false, 0, 0, 0
  learning, learned, virtual, order, changed, count, joined = 0, false, 0, 0, false, 0, 0
end

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

local HEAD, EACH = 16, 11
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

-- The mirror of a dimension: see share's mirror -----------------------------------------

local function whole(level) return floor(max(min(level + SLACK, 4611686018427387904), -4611686018427387904)) end

local function ring(a)
  local r = a.ring
  if not r then
    local s = call('HGET', Q, 'k' .. a.i)
    if s then
      r = unpack(s)
    else
      r = {}
      for k = 1, a.n do r[k] = 0 end
    end
    a.ring = r
  end
  return r
end

local function step(a, level, ticks, spent)
  level = min(a.burst, level + a.rate * ticks / a.window)
  return min(a.burst, level - spent)
end

local function fold(a, cell, spent)
  local to = (cell + 1) * a.cell
  if to <= a.from then return end
  a.base = step(a, a.base, to - a.from, spent)
  a.from = to
end

local function advance(a)
  if a.shape == SLOTS then return end
  local to = floor(now / a.cell)
  if to <= a.cur then return end
  local r, n, bucket = ring(a), a.n, a.shape == BUCKET
  for _ = 1, min(to - a.cur, n) do
    local oldest = a.cur - n + 1
    local k = oldest % n + 1
    local c = r[k]
    if bucket then fold(a, oldest, c) end
    a.sum = a.sum - c
    r[k] = 0
    a.cur = a.cur + 1
  end
  if a.cur < to then
    a.cur = to
    if bucket then fold(a, to - n, 0) end
  end
  a.stale, a.dirty = true, true
end

local function level(a)
  if a.shape == WINDOW then return a.rate - a.sum end
  if a.shape == SLOTS then return a.rate end
  local r, n = ring(a), a.n
  if a.stale then
    a.stale = false
    local l, at = a.base, a.from
    for cell = max(a.cur - n + 1, floor(at / a.cell)), a.cur - 1 do
      local to = (cell + 1) * a.cell
      l = step(a, l, to - at, r[cell % n + 1])
      at = to
    end
    a.start = l
  end
  return step(a, a.start, now - max(a.from, a.cur * a.cell), r[a.cur % n + 1])
end

local function capacity(a)
  if a.shape == BUCKET then return a.burst end
  return a.rate
end

local function add(a, cell, amount)
  local r = ring(a)
  local k = cell % a.n + 1
  r[k] = r[k] + amount
  a.sum = a.sum + amount
  a.stale = a.stale or cell < a.cur
  a.dirty = true
end

-- spend books what was spent by a certain time, at the latest, and returns the cell.
local function spend(a, at, amount)
  if a.pace or amount == 0 then return 0 end
  local cell = min(floor(at / a.cell), a.cur)
  if a.shape == SLOTS then return cell end
  if cell >= a.cur - a.n + 1 and (a.shape == WINDOW or (cell + 1) * a.cell > a.from) then
    add(a, cell, amount)
  elseif a.shape == BUCKET then
    a.base = a.base - amount
    a.stale = true
    cell = a.cur - a.n
  end
  return cell
end

local function takeback(a, cell, amount)
  if a.shape == SLOTS or cell < a.cur - a.n + 1 or a.shape == BUCKET and (cell + 1) * a.cell <= a.from then return end
  add(a, cell, -amount)
end

local function refund(a, at, amount)
  local cell = min(floor(at / a.cell), a.cur)
  if a.shape == BUCKET then cell = cell - 1 end
  takeback(a, cell, amount)
end

local function restart(a, l)
  local r = {}
  for k = 1, a.n do r[k] = 0 end
  a.ring, a.dirty, a.sum = r, true, 0
  a.base, a.from, a.start, a.stale = l, now, l, false
end

-- debit takes an amount from a bucket that paces.
local function debit(a, amount) restart(a, min(level(a) - amount, a.burst)) end

local function lower(a, left, reset)
  local over = whole(level(a) - left)
  if over <= 0 or a.shape == SLOTS then return end
  local at = now
  if a.shape == WINDOW and reset > 0 then at = at - max(a.window - reset, 0) end
  spend(a, at, over)
end

local function refills(a, units) return math.ceil(units * a.window / a.rate) end

-- wait is how long it takes until the level has risen, or nil.
local function wait(a, need)
  local have = level(a)
  if have + SLACK >= need then return 0 end
  if a.shape == WINDOW then
    local r, n = ring(a), a.n
    for cell = a.cur - n + 1, a.cur do
      have = have + r[cell % n + 1]
      if have + SLACK >= need then return (cell + n) * a.cell - now end
    end
  elseif a.shape == BUCKET then
    if need > a.burst + SLACK or a.rate <= 0 then return nil end
    local rest, spent = (a.cur + 1) * a.cell - now, ring(a)[a.cur % a.n + 1]
    local t = refills(a, need - have)
    if t <= rest and need + spent <= a.burst then return t end
    local last = step(a, a.start, (a.cur + 1) * a.cell - max(a.from, a.cur * a.cell), spent)
    return rest + refills(a, max(need - last, 0))
  end
  return nil
end

-- Limits: of every dimension the limits and the parts of them that replicas know, and how
-- many know each.

local known_limits, limitsdirty

local function knows()
  if not known_limits then
    local s = call('HGET', Q, 'l')
    if s then
      known_limits = unpack(s)
    else
      known_limits = {}
      for i = 1, 2 * D do known_limits[i] = {} end
    end
  end
  limitsdirty = true
  return known_limits
end

local function tally(list, value, by)
  for k = 1, #list, 2 do
    if list[k] == value then
      list[k + 1] = list[k + 1] + by
      if list[k + 1] == 0 then
        table.remove(list, k)
        table.remove(list, k)
      end
      return
    end
  end
  list[#list + 1] = value
  list[#list + 1] = by
end

local function least_of(list)
  local value
  for k = 1, #list, 2 do
    if not value or list[k] < value then value = list[k] end
  end
  return value
end

-- limits puts the smallest in force.
local function limits()
  if not changed then return end
  changed = false
  local all = knows()
  for i = 1, D do
    local a = dims[i]
    local limit, share = least_of(all[2 * i - 1]), min(1, least_of(all[2 * i]) or 1)
    if limit then
      a.limit = limit
      local burst = a.cfgburst
      if a.cfglimit > 0 then burst = max(min(limit, 1), burst * limit / a.cfglimit) end
      limit, burst = limit * share, burst * share
      if limit ~= a.rate or burst ~= a.burst then
        if a.shape == BUCKET then restart(a, min(level(a), burst)) end
        a.rate, a.burst = limit, burst
      end
    end
  end
end

-- Replicas ---------------------------------------------------------------------------------

-- What a replica has of a dimension is seven numbers of its h: what is outstanding, what
-- it wants and needs, the limit that it knows and the part of it, and what was booked when
-- its lease ended, and in which cell.
local function load(n)
  local s = call('HGET', R, n)
  if not s then return nil end
  local v = unpack(s)
  return {
    name = n, epoch = v[1], seq = v[2], weight = v[3], joins = v[4], placed = v[5], heard = v[6], expires = v[7],
    lapsed = v[8], tag = v[9], ord = v[10], wanting = v[11], h = v[12], reply = v[13],
  }
end

local function save(p)
  call('HSET', R, p.name, pack({
    p.epoch, p.seq, p.weight, p.joins, p.placed, p.heard, p.expires, p.lapsed, p.tag, p.ord, p.wanting, p.h, p.reply,
  }))
end

local function unclaim(p)
  for k = 1, #claims do
    if claims[k][4] == p.ord then
      table.remove(claims, k)
      claimsdirty = true
      return
    end
  end
end

-- unlist takes what a replica wants and knows out of the sums.
local function unlist(p)
  if p.wanting then
    call('HDEL', W, p.name)
    p.wanting = false
  end
  if p.lapsed then return end
  local all = knows()
  for i = 1, D do
    local o = (i - 1) * 7
    dims[i].wants = dims[i].wants - p.h[o + 2]
    tally(all[2 * i - 1], p.h[o + 4], -1)
    tally(all[2 * i], p.h[o + 5], -1)
  end
end

local function lapse(p)
  unclaim(p)
  unlist(p)
  p.lapsed, changed = true, true
  for i = 1, D do
    local a, h, o = dims[i], p.h, (i - 1) * 7
    a.out = a.out - h[o + 1]
    if a.shape ~= SLOTS and not a.pace then
      h[o + 6] = h[o + 1]
      h[o + 7] = spend(a, p.expires, h[o + 1])
    end
    h[o + 1], h[o + 2], h[o + 3] = 0, 0, 0
  end
end

local function forget(n)
  call('HDEL', R, n)
  call('ZREM', X, n)
  call('ZREM', E, n)
  count = count - 1
end

-- bury keeps what a former life of a replica had until its lease ends.
local function bury(p)
  unclaim(p)
  unlist(p)
  local outs = {}
  for i = 1, D do outs[i] = p.h[(i - 1) * 7 + 1] end
  ghosts[#ghosts + 1] = {p.name, p.epoch, p.seq, p.expires, outs}
  ghostsdirty, changed = true, true
  forget(p.name)
end

local function expire()
  for _, n in ipairs(call('ZRANGEBYSCORE', X, '-inf', now, 'LIMIT', 0, GONE)) do
    local p = load(n)
    if not p then
      call('ZREM', X, n)
    else
      if not p.lapsed and now >= p.expires then
        lapse(p)
        save(p)
      end
      local next = p.expires
      if p.lapsed then next = now + p.heard + memory - heard end
      if p.lapsed and now >= next then
        forget(n)
      else
        call('ZADD', X, next, n)
      end
    end
  end
  local kept = {}
  for _, g in ipairs(ghosts) do
    if now < g[4] then
      kept[#kept + 1] = g
    else
      ghostsdirty = true
      for i = 1, D do
        dims[i].out = dims[i].out - g[5][i]
        spend(dims[i], g[4], g[5][i])
      end
    end
  end
  ghosts = kept
end

local function learn()
  learned, learning = true, now + ttl
  for i = 1, D do
    if dims[i].shape == BUCKET then restart(dims[i], min(level(dims[i]), 0)) end
  end
end

-- A server that was started just now may have lost a state.
local function restarted()
  local info = redis.pcall('INFO', 'server')
  local up = type(info) == 'string' and string.match(info, 'uptime_in_seconds:(%d+)')
  return up and up * SECOND < ttl + SECOND
end

-- The step ---------------------------------------------------------------------------------

if m then
  heard = heard + min(now - before, ttl)
elseif lost or learns == 1 or learns == 2 and restarted() then
  learn()
end
for i = 1, D do advance(dims[i]) end
expire()
limits()

local function free(a)
  local n = whole(level(a))
  if not a.pace then n = n - a.out end
  return n
end

-- A reply: whether it is stale, the coordinator's epoch and time, when to ask again, how
-- many replicas there are, whether parts follow, and per dimension what is granted, the
-- limit, whether it is scarce, and in how many parts it is divided.
local function blank(stale)
  local reply = {stale, coordinator, now, 0, count, 0}
  for i = 1, D do
    local o = 6 + (i - 1) * 4
    reply[o + 1], reply[o + 2], reply[o + 3], reply[o + 4] = 0, dims[i].limit, 0, 0
  end
  return reply
end

-- enter finds the replica, or makes it; nil if the request is not to be taken in.
local function enter()
  if known ~= 0 and known ~= coordinator then
    if not learned then learn() end
    return nil
  end
  for _, g in ipairs(ghosts) do
    if g[1] == name and (epoch < g[2] or epoch == g[2] and seq <= g[3]) then return nil end
  end
  local p, placed = load(name), true
  if p then
    if epoch < p.epoch or epoch == p.epoch and seq < p.seq then return nil end
    if epoch == p.epoch then return p end
    bury(p)
    placed = false
  end
  placed = placed and count < least
  joined = joined + 1
  local h = {}
  for k = 1, 7 * D do h[k] = 0 end
  p = {
    name = name, epoch = epoch, seq = 0, weight = 1, joins = 0, placed = placed, heard = heard, expires = now + ttl + late,
    lapsed = true, tag = virtual, ord = joined, wanting = false, h = h, reply = {}, new = true,
  }
  if not placed then p.joins = now + ttl end
  count = count + 1
  return p
end

local function renew(p)
  p.heard, p.expires = heard, now + ttl + late
  call('ZADD', E, p.expires, name)
end

-- suspect looks for others that may have gone by their parts, and have not told yet. A
-- lease ends so long after its replica was heard of that this tells when that was.
local function suspect(p)
  if alone <= 0 then return end
  local start, held = now - alone, ttl + late
  local lo, hi = start - (1 + BEAT) * ttl - late + held, start + held
  local others, silent = call('ZCOUNT', E, lo, '+inf'), call('ZCOUNT', E, lo, '(' .. string.format('%.17g', hi))
  if not p.new and p.expires >= lo then
    others = others - 1
    if p.expires < hi then silent = silent - 1 end
  end
  if silent > 0 and 2 * silent >= others then learning = max(learning, now + ttl) end
end

local function report(p)
  local returned, all = 0, nil
  for i = 1, D do
    local a, h, o = dims[i], p.h, (i - 1) * 7
    if h[o + 6] > 0 then
      takeback(a, h[o + 7], h[o + 6])
      h[o + 6] = 0
    end
    local spent = 0
    for k = a.first + 1, a.first + 2 * a.spends, 2 do
      local age, amount = max(args[k], 0), args[k + 1]
      if amount > 0 then
        spent = spent + amount
        spend(a, now - age, amount)
      elseif prev > 0 and not a.pace then
        refund(a, min(prev + since, now) - age - 1, -amount)
      end
    end
    local has = max(a.has, 0)
    local back = h[o + 1] - spent - has
    if back > 0 then
      if a.pace and not p.lapsed then debit(a, -back) end
      if a.shape ~= SLOTS and a.rate > 0 then returned = max(returned, back / a.rate) end
    end
    a.out = a.out + has - h[o + 1]
    h[o + 1] = has
    local limit, share = max(a.knows, 0), a.share
    if not (share > 0 and share < 1) then share = 1 end
    if p.lapsed or limit ~= h[o + 4] or share ~= h[o + 5] then
      changed = true
      all = all or knows()
      if not p.lapsed then
        tally(all[2 * i - 1], h[o + 4], -1)
        tally(all[2 * i], h[o + 5], -1)
      end
      tally(all[2 * i - 1], limit, 1)
      tally(all[2 * i], share, 1)
    end
    h[o + 4], h[o + 5] = limit, share
  end
  if p.lapsed then call('ZADD', X, p.expires, name) end
  p.lapsed = false
  p.tag = p.tag - returned / p.weight
end

-- Claims: tag, order, until when, whose, and the units of each dimension.

local function earlier(k, o) return k[1] < o[1] or k[1] == o[1] and k[2] < o[2] end

local function newclaim(p)
  order = order + 1
  return {max(virtual, p.tag), order, 0, p.ord}
end

local function claimof(p)
  for k = 1, #claims do
    if claims[k][4] == p.ord then return claims[k] end
  end
end

local function claimed(p, waits)
  local ahead, others, kept = {}, {}, {}
  for i = 1, D do ahead[i], others[i] = 0, 0 end
  local mine = claimof(p) or newclaim(p)
  for _, k in ipairs(claims) do
    if k[3] < now and k ~= mine then
      claimsdirty = true
    else
      kept[#kept + 1] = k
      if k ~= mine then
        local before = not waits or earlier(k, mine)
        for i = 1, D do
          others[i] = others[i] + k[4 + i]
          if before then ahead[i] = ahead[i] + k[4 + i] end
        end
      end
    end
  end
  claims = kept
  return ahead, others
end

local function room(a, need) return min(need, whole(capacity(a))) end

local function never(a, need) return a.rate <= 0 or a.shape == WINDOW and need > a.limit end

local function waitfor(p, a, short)
  local need = level(a) + short
  if need <= capacity(a) + SLACK then
    local t = wait(a, need)
    if t then return t end
  end
  if a.out == p.h[(a.i - 1) * 7 + 1] then return floor(ttl / 2) end
  return max(poll, SECOND / 1000 * #claims)
end

-- fits is how long to wait for what p needs, or nil if it can be granted.
local function fits(p, ahead)
  local t, ok = 0, true
  for i = 1, D do
    local a, need = dims[i], p.h[(i - 1) * 7 + 3]
    if need ~= 0 then
      if never(a, need) then return floor(ttl / 2) end
      local short = ahead[i] + room(a, need) - free(a)
      if short > 0 then
        ok = false
        t = max(t, waitfor(p, a, short))
      end
    end
  end
  if ok then return nil end
  return max(min(t, floor(ttl / 2)), SECOND / 1000)
end

local function keep(p, t)
  local mine = claimof(p)
  if not mine then
    mine = newclaim(p)
    local at = #claims + 1
    for k = 1, #claims do
      if not earlier(claims[k], mine) then
        at = k
        break
      end
    end
    table.insert(claims, at, mine)
  end
  mine[3] = now + max(2 * t, SECOND)
  for i = 1, D do
    local a, need = dims[i], p.h[(i - 1) * 7 + 3]
    mine[4 + i] = never(a, need) and 0 or room(a, need)
  end
  claimsdirty = true
end

-- fill divides a pool between those that want more than it has, so that what they have
-- over their weights comes to one level. It returns the part of the first.
local function fill(open, pool)
  local first = open[1]
  while true do
    local has, weight = 0, 0
    for _, o in ipairs(open) do
      has = has + o[1]
      weight = weight + o[3]
    end
    local l = (pool + has) / weight
    local below, above = 0, 0
    for _, o in ipairs(open) do
      above = above + max(o[1] - l * o[3], 0)
      below = below + max(l * o[3] - o[1] - o[2], 0)
    end
    if above == 0 and below == 0 then return max(l * first[3] - first[1], 0) end
    local kept = {}
    for k, o in ipairs(open) do
      if above >= below and o[1] > l * o[3] then
        if k == 1 then return 0 end
      elseif above < below and o[1] + o[2] < l * o[3] then
        if k == 1 then return o[2] end
        pool = pool - o[2]
      else
        kept[#kept + 1] = o
      end
    end
    open = kept
  end
end

-- wanting are all others that want something, in the order in which they came.
local wanting
local function others_wanting()
  if wanting then return wanting end
  wanting = {}
  local all = call('HGETALL', W)
  for k = 1, #all, 2 do
    if all[k] ~= name then wanting[#wanting + 1] = unpack(all[k + 1]) end
  end
  table.sort(wanting, function(a, b) return a[1] < b[1] end)
  return wanting
end

local function extra(p, i, kept)
  local a, o = dims[i], (i - 1) * 7
  local out, need = p.h[o + 1], p.h[o + 3]
  local want, has = p.h[o + 2] - need, out + need
  local pool = free(a) - need - kept
  if want <= 0 or pool <= 0 then return 0 end
  if want + a.wants - p.h[o + 2] <= pool then return want end
  local open = {{has, want, p.weight}}
  for _, q in ipairs(others_wanting()) do
    if q[2 * i + 2] > 0 then open[#open + 1] = {q[2 * i + 1], q[2 * i + 2], q[2]} end
  end
  return min(want, whole(fill(open, pool)))
end

local function scarce(kept, reply)
  for i = 1, D do
    if kept[i] > 0 and kept[i] > free(dims[i]) then reply[6 + (i - 1) * 4 + 3] = 1 end
  end
end

-- parts are in how many parts each dimension is divided; 0 if p has none yet.
local function parts(p, reply)
  reply[6] = 1
  for i = 1, D do
    local a, forgets = dims[i], 0
    if a.shape == WINDOW then forgets = a.window + a.cell end
    if p.placed or now >= p.joins + forgets then
      reply[6 + i * 4] = max(least, call('ZCOUNT', E, '(' .. string.format('%.17g', now - forgets), '+inf'))
    end
  end
end

local function setwant(a, p, want)
  local o = (a.i - 1) * 7
  a.wants = a.wants + want - p.h[o + 2]
  p.h[o + 2] = want
end

local function answer(p)
  local reply, waits = blank(0), false
  for i = 1, D do
    local a = dims[i]
    local need = max(a.need, 0)
    p.h[(i - 1) * 7 + 3] = need
    setwant(a, p, max(a.want, need))
    waits = waits or need > 0
  end
  if mode == STATIC then
    unclaim(p)
    parts(p, reply)
    return reply
  end
  if now < learning then
    unclaim(p)
    reply[4] = learning - now
    return reply
  end
  local ahead, others = claimed(p, waits)
  if waits then
    local t = fits(p, ahead)
    if t then
      reply[4] = t
      keep(p, t)
      scarce(ahead, reply)
      return reply
    end
  end
  unclaim(p)
  local part = 0
  for i = 1, D do
    local a, o = dims[i], (i - 1) * 7
    local grant = p.h[o + 3]
    if mode == LEASED then grant = grant + extra(p, i, others[i]) end
    setwant(a, p, max(p.h[o + 2] - grant, 0))
    reply[6 + (i - 1) * 4 + 1] = grant
    if a.pace then debit(a, grant) end
    p.h[o + 1] = p.h[o + 1] + grant
    a.out = a.out + grant
    if a.shape ~= SLOTS and a.rate > 0 then part = max(part, grant / a.rate) end
  end
  if part ~= 0 then
    virtual = max(virtual, p.tag)
    p.tag = virtual + part / p.weight
  end
  scarce(others, reply)
  return reply
end

local function doit()
  local p = enter()
  if not p then return blank(1) end
  if seq == p.seq then
    if not p.lapsed then renew(p) end
    save(p)
    return p.reply
  end
  suspect(p)
  report(p)
  if leave then
    p.seq, p.expires = seq, now + ttl + late
    bury(p)
    return blank(0)
  end
  p.seq, p.weight = seq, 1
  if weight > 0 and weight < MAXWEIGHT then p.weight = weight end
  renew(p)
  limits()
  for i = 1, D do
    local a = dims[i]
    if a.left >= 0 and not a.pace then lower(a, a.left + a.out, max(a.reset, 0)) end
  end
  p.reply = answer(p)
  local row, wants = {p.ord, p.weight}, false
  for i = 1, D do
    local o = (i - 1) * 7
    row[2 * i + 1], row[2 * i + 2] = p.h[o + 1], p.h[o + 2]
    wants = wants or p.h[o + 2] > 0
  end
  if wants then
    call('HSET', W, name, pack(row))
  elseif p.wanting then
    call('HDEL', W, name)
  end
  p.wanting = wants
  save(p)
  return p.reply
end

local reply = doit()

-- What has changed is written.
local out = {
  ARGV[3], coordinator, from, reading, last, stepped, peak, atpeak, heard,
  learning, learned, virtual, order, changed, count, joined,
}
local set = {'HSET', Q}
for i = 1, D do
  local a, o = dims[i], HEAD + (i - 1) * EACH
  out[o + 1], out[o + 2], out[o + 3], out[o + 4], out[o + 5], out[o + 6] = a.out, a.limit, a.rate, a.burst, a.cur, a.sum
  out[o + 7], out[o + 8], out[o + 9], out[o + 10], out[o + 11] = a.from, a.base, a.start, a.stale, a.wants
  if a.dirty then
    set[#set + 1] = 'k' .. i
    set[#set + 1] = pack(a.ring)
  end
end
set[#set + 1] = 'm'
set[#set + 1] = pack(out)
if claimsdirty then
  set[#set + 1] = 'c'
  set[#set + 1] = pack(claims)
end
if ghostsdirty then
  set[#set + 1] = 'g'
  set[#set + 1] = pack(ghosts)
end
if limitsdirty then
  set[#set + 1] = 'l'
  set[#set + 1] = pack(known_limits)
end
call(spread(set))
for k = 1, 5 do call('PEXPIRE', KEYS[k], keep_for) end
return reply
