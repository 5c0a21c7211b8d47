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
