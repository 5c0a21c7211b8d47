-- Erase forgets the counters of a key, and takes its name out of open reservations. It
-- looks at some of these, and answers with where to go on. Those that have ended are
-- forgotten by themselves, and nothing that is told of them names the key: see repeat.lua. Its keys are
-- the index, the account and its past windows.
local cursor = ARGV[1]
if cursor == '0' then call('DEL', KEYS[2], KEYS[3]) end

local scan = call('ZSCAN', KEYS[1], cursor, 'COUNT', 32)
for i = 1, #scan[2], 2 do
  local name = scan[2][i]
  local s = name ~= '' and call('GET', name)
  if s and byte(s, 2) == OPEN then
    local version, state, late, marked, low, high, began, expires, wait, places, entries, n, at_said, at_flags, at_slots, at = get(RECORD, s)
    local at_sinces = at_slots + 56 * n
    local length, at_key = get('<H', s, at)
    at_key = at_key + length
    local left, sinces, at_keys, named = '', '', at_key, false
    for p = 1, places do
      local begun, account = at_key
      account, at_key = get('<Hc0', s, at_key)
      if account == KEYS[2] then
        -- Of nobody, whose account was never there since then.
        left, sinces, named = left .. put('<Hc0', #KEYS[1], KEYS[1]), sinces .. string.rep('\0', 8), true
      else
        left, sinces = left .. sub(s, begun, at_key - 1), sinces .. sub(s, at_sinces + 8 * p - 8, at_sinces + 8 * p - 1)
      end
    end
    if named then
      local less = at_key - at_keys - #left
      call('SET', name, put(RECORD, version, state, late, marked, low, high, began, expires, wait, places, entries, n,
        at_said - less, at_flags - less, at_slots - less) .. sub(s, at, at_keys - 1) .. left .. sub(s, at_key, at_sinces - 1)
        .. sinces .. sub(s, at_sinces + 8 * places), 'KEEPTTL')
    end
  end
end
return 'S' .. scan[1]
