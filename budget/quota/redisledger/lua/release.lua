-- Release gives back what a reservation holds. Its keys are the index and the
-- reservation.
local offset, still
offset, still, remember, forget, keep = get('<lBllH', ARGV[1])
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end
local past = unfold()
local _, conclude = sweeping(past)
local s = call('GET', KEYS[2])
if not s then return 'U' end
local state = byte(s, 2)
if (state == OPEN or state == EXPIRED) and not conclude(KEYS[2], s, RELEASED) then return 'E' end
return 'S'
