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
-- limit, whether it is scarce, and in how many parts it is divided; and last, if that is why
-- it is stale, the epoch of the replica that is gone by.
local function blank(stale, newest)
  local reply = {stale, coordinator, now, 0, count, 0}
  for i = 1, D do
    local o = 6 + (i - 1) * 4
    reply[o + 1], reply[o + 2], reply[o + 3], reply[o + 4] = 0, dims[i].limit, 0, 0
  end
  reply[7 + D * 4] = newest or 0
  return reply
end

-- enter finds the replica, or makes it; nil if the request is not to be taken in, and the
-- epoch of the replica that is gone by, if that is why.
local function enter()
  if known ~= 0 and known ~= coordinator then
    if not learned then learn() end
    return nil
  end
  local old, newest = false, 0
  for _, g in ipairs(ghosts) do
    if g[1] == name and (epoch < g[2] or epoch == g[2] and seq <= g[3]) then old, newest = true, max(newest, g[2]) end
  end
  local p, placed = load(name), true
  if p and (epoch < p.epoch or epoch == p.epoch and seq < p.seq) then old, newest = true, max(newest, p.epoch) end
  if old then return nil, newest end
  if p then
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
  local unheard = max(least - count, 0)
  silent, others = silent + unheard, others + unheard
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
  if p.lapsed then looks(p.expires, name) end
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

-- others_wanting are all others that want something: what they weigh, and what they have
-- and want of each dimension. In which order they come makes no difference but to the
-- last bit of sums.
local rows
local function others_wanting()
  if not rows then
    rows = {}
    local all = call('HGETALL', W)
    for k = 1, #all, 2 do
      if all[k] ~= name then rows[#rows + 1] = unpack(all[k + 1]) end
    end
  end
  return rows
end

-- fill divides a pool between n that want more than it has, so that what they have over
-- their weights comes to one level. It returns the part of the first.
local function fill(n, has, want, weight, pool)
  local has1, want1, weight1 = has[1], want[1], weight[1]
  while true do
    local sum, weights = 0, 0
    for k = 1, n do
      sum = sum + has[k]
      weights = weights + weight[k]
    end
    local l = (pool + sum) / weights
    local below, above = 0, 0
    for k = 1, n do
      local over = has[k] - l * weight[k]
      if over > 0 then
        above = above + over
      else
        over = l * weight[k] - has[k] - want[k]
        if over > 0 then below = below + over end
      end
    end
    if above == 0 and below == 0 then return max(l * weight1 - has1, 0) end
    local kept = 0
    for k = 1, n do
      local h, w, g = has[k], want[k], weight[k]
      if above >= below and h > l * g then
        if k == 1 then return 0 end
      elseif above < below and h + w < l * g then
        if k == 1 then return want1 end
        pool = pool - w
      else
        kept = kept + 1
        has[kept], want[kept], weight[kept] = h, w, g
      end
    end
    n = kept
  end
end

local function extra(p, i, kept)
  local a, o = dims[i], (i - 1) * 7
  local out, need = p.h[o + 1], p.h[o + 3]
  local want, has = p.h[o + 2] - need, out + need
  local pool = free(a) - need - kept
  if want <= 0 or pool <= 0 then return 0 end
  if want + a.wants - p.h[o + 2] <= pool then return want end
  local n, h, w, g = 1, {has}, {want}, {p.weight}
  for _, q in ipairs(others_wanting()) do
    if q[2 * i + 1] > 0 then
      n = n + 1
      h[n], w[n], g[n] = q[2 * i], q[2 * i + 1], q[1]
    end
  end
  return min(want, whole(fill(n, h, w, g, pool)))
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
      if dims[D].shape == SLOTS then ahead[D] = others[D] end -- time brings none back: they go round
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
  local p, newest = enter()
  if not p then return blank(1, newest) end
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
  local row, wants = {p.weight}, false
  for i = 1, D do
    local o = (i - 1) * 7
    row[2 * i], row[2 * i + 1] = p.h[o + 1], p.h[o + 2]
    wants = wants or p.h[o + 2] > 0
  end
  if wants then
    call('HSET', W, name, pack(row))
    call('PEXPIRE', W, keep_for) -- it may be new
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
  learning, learned, virtual, order, changed, count, joined, look, tended,
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
if tend then
  for k = 1, 5 do call('PEXPIRE', KEYS[k], keep_for) end
end
return reply
