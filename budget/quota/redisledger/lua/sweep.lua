-- sweep ends some of the reservations that have expired. It returns when the first of
-- the others expires, and whether there are more.
local function sweep()
  local due = call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 33)
  for i = 1, math.min(#due, 32) do
    local s = call('GET', due[i])
    if not s or byte(s, 2) ~= OPEN then
      call('ZREM', KEYS[1], due[i])
    else
      -- The index may be early by what it takes a message to arrive; see Go.
      local expires = get('<l', s, 21)
      if expires > now then
        call('ZADD', KEYS[1], expires, due[i])
      elseif not conclude(due[i], s, EXPIRED) then
        return
      end
    end
  end
  local next = call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  local first = NEVER
  if next[1] and next[1] ~= '' then first = tonumber(next[2]) end
  return first, due[33] ~= nil
end
return sweep, conclude
