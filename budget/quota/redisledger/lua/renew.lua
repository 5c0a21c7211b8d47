-- Renew has reservations live on. It answers with the numbers of those that do not. Its
-- keys are the index and the reservations.
local offset, still, ttl
offset, still, remember, forget, keep, ttl = get('<lBllHl', ARGV[1])
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end
local expires = now + ttl
local lost, any = {'S'}, false
for i = 2, #KEYS do
  local s = call('GET', KEYS[i])
  local held = false
  if s and byte(s, 2) == OPEN then
    local version, state, late, marked, low, high, began, old, wait, places, entries, n, at_said, at_flags, at_slots, at = get(RECORD, s)
    if old > now then
      held, any = true, true
      call('SET', KEYS[i], put(RECORD, version, state, late, marked, low, high, began, expires, wait, places, entries, n,
        at_said, at_flags, at_slots) .. sub(s, at), 'PX', ceil((ttl + forget + DAY) / 1000))
      call('ZADD', KEYS[1], expires, KEYS[i])
      local exclusive, at_key = get('<Hc0', s, at)
      if exclusive ~= '' then
        call('SET', exclusive, put('<l', expires) .. KEYS[i], 'PX', ceil((ttl + SPARE) / 1000))
      end
      local need = expires + remember
      for p = 1, places do
        local account
        account, at_key = get('<Hc0', s, at_key)
        local text = call('MGET', account)[1] -- nil for what is no account any more
        if text then
          local since, till, first = get(ACCOUNT, text)
          if since == sub(s, at_slots + 56 * n + 8 * p - 8, at_slots + 56 * n + 8 * p - 1) and (need > till or expires < first) then
            if need > till then till = need + SPARE end
            if expires < first then first = expires end
            call('SET', account, put(ACCOUNT, since, till, first) .. sub(text, 25), 'PX', ceil((till - now) / 1000))
          end
        end
      end
    end
  end
  if not held then lost[#lost + 1] = put('<H', i - 2) end
end
if any then
  local ms = ceil((ttl + remember + forget + DAY) / 1000)
  if call('PEXPIRE', KEYS[1], ms, 'GT') == 0 then call('PEXPIRE', KEYS[1], ms, 'NX') end
end
return concat(lost)
