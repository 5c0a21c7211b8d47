-- Settle replaces what a reservation holds by what was used. Its keys are the index, the
-- reservation and the writer's.
local asked, said, called = ARGV[1], ARGV[2], ARGV[3]
local offset, still, adjust, low, high, low2, high2, places, more, at
offset, still, remember, forget, keep, adjust, low, high, low2, high2, places, more, at = get('<lBllHBIiIiHH', asked)
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end
local name, past = KEYS[2], nil
local s = call('GET', name)
-- FAST

-- PLAIN
local was = s and byte(s, 2)
if was == OPEN or was == EXPIRED or was and adjust == 1 then -- its accounts, and those that come with it, may hold what has expired
  local r = was == SETTLED_SIMPLY and sub(s, 13) or s -- as it was when it was open
  local _, _, _, _, _, _, _, _, _, n, _, _, _, _, _, at_name = get(RECORD, r)
  local length
  length, at_name = get('<H', r, at_name)
  at_name = at_name + length
  for i = 1, n + places do
    local account = ARGV[i - n + 4]
    if i <= n then account, at_name = get('<Hc0', r, at_name) end
    local text = call('MGET', account)[1] -- nil for what is no account any more
    if text and now >= get('<l', text, 17) then
      past = unfold() -- RARE
      local first, behind = sweeping(past)()
      if large then return 'E' end
      if not behind then call('SETRANGE', account, 16, put('<l', first)) end
      s = call('GET', name)
    end
  end
end
local newer = false
if KEYS[3] then
  local l, h = 0, 0
  local last = call('GET', KEYS[3])
  if last then l, h = get('<Ii', last) end
  newer = high2 > h or high2 == h and low2 > l
  if not s and not newer then return 'P' end
end
if not s then return 'U' end

local state = byte(s, 2)
if state == SETTLED_SIMPLY then
  s, state = unfoldplain()(s), SETTLED
end
local changes = state ~= RELEASED
if state == SETTLED then
  local l, h = get('<Ii', s, 5)
  changes = adjust == 1 and (high > h or high == h and low > l)
end
local answer = 'S'
if changes then
  local actual, targets, old = {}, nil, nil
  actual[0], actual[1], actual[2], actual[3], actual[4], actual[5], at = get('<LLLLLL', asked, at)
  if more > 0 then
    past = past or unfold() -- RARE
    s, targets, old = unfoldmore(past)(s, said, called, asked, at, places, more)
  end
  state = SETTLED
  -- CONCLUDE
  if not s then return 'E' end
elseif state == RELEASED then
  answer = 'P'
else
  past = unfoldrepeat() -- RARE
  s, answer = past(s), 'R'
end
if newer then
  call('SET', KEYS[3], put('<Ii', low2, high2), 'PX', ceil((remember + DAY) / 1000))
end
if answer == 'P' then return answer end
if answer == 'R' then return answer .. s end
return s
