-- repeated is a reservation that is told again, and for each of its accounts whether that
-- was erased since: the record still names it.
local function repeated(s)
  local r = byte(s, 2) == SETTLED_SIMPLY and sub(s, 13) or s -- as it was when it was open
  local _, _, _, _, _, _, _, _, _, places, _, n, _, _, at_slots, at = get(RECORD, r)
  local at_sinces = at_slots + 56 * n
  local length
  length, at = get('<H', r, at)
  at = at + length
  local gone = ''
  for p = 1, places do
    local account
    account, at = get('<Hc0', r, at)
    local text = call('MGET', account)[1] -- nil for what is no account any more
    local is = not text or sub(text, 1, 8) ~= sub(r, at_sinces + 8 * p - 8, at_sinces + 8 * p - 1)
    gone = gone .. (is and '\1' or '\0')
  end
  return s .. gone
end
return repeated
