-- History answers with the past windows of a counter, the oldest first, and the latest
-- one. Its keys are the index, the account and its past windows.
local slot = ARGV[2]
local offset, still
offset, still, remember, forget, keep = get('<lBllH', ARGV[1])
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end
local text = call('GET', KEYS[2])
if text and now >= get('<l', text, 17) then
  local first, behind = sweeping(unfold())()
  if large then return 'E' end
  if behind then return 'B' end
  call('SETRANGE', KEYS[2], 16, put('<l', first))
  text = call('GET', KEYS[2])
end
local answer = 'S' .. put('<l', now)
local off = text and find(text, slot, 25, true)
if not off then return answer end
return answer .. (call('HGET', KEYS[3], slot) or '') .. sub(text, off + 8, off + 55)
