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
  if count == 0 then tend = true end -- the keys that held them are gone, and come anew
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

local function looks(at, n)
  call('ZADD', X, at, n)
  look = min(look, at)
end

-- expire ends leases whose time has come, and forgets who has gone.
local function expire()
  local due = {}
  if now >= look then
    due = call('ZRANGEBYSCORE', X, '-inf', now, 'LIMIT', 0, GONE)
  end
  for _, n in ipairs(due) do
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
  if now >= look then
    local first = call('ZRANGE', X, 0, 0, 'WITHSCORES')
    look = tonumber(first[2]) or math.huge
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
