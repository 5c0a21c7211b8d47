-- Status says how counters stand. A top-up and a reset change one of them before; they
-- have a number that makes a repeat harmless. Its keys are the index, that of the
-- number, and the accounts.
local change, asked = ARGV[1], ARGV[2]
local offset, still, entries, by, at
offset, still, remember, forget, keep, entries, by, at = get('<lBllHHL', asked)
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end
local got = call('MGET', unpack(KEYS, 2))
local past = unfold()
for p = 3, #KEYS do
  if got[p - 1] and now >= get('<l', got[p - 1], 17) then
    local first, behind = sweeping(past)()
    if large then return 'E' end
    if behind then return 'B' end
    call('SETRANGE', KEYS[p], 16, put('<l', first))
    got = call('MGET', unpack(KEYS, 2))
  end
end
local changes = change ~= '' and not got[1] and got[2]

local slots, text, need = {}, nil, 0
for i = 1, entries do
  local p, flag, slot, rate, den
  p, flag, slot, rate, den, at = get('<HBc8LL', asked, at)
  text = got[p + 1] or ''
  local off = find(text, slot, 25, true)
  if flag % 8 >= 4 then -- rolling
    local units, part, since, held, mark, holds, length, charges = ZERO, ZERO, now, ZERO, 0, 0, 0, nil
    if off then
      units, part, since, held, mark, holds, length = get(BUCKET, text, off + 8)
      see(units, held)
      if length > 0 then
        charges = sub(text, off + 56, off + 55 + length)
      elseif holds > 0 then
        charges = put(CHARGE, units, part, mark, holds)
      end
      -- What was refilled, and then what is given.
      local u, r = ZERO, ZERO
      if now > since then
        if rate > ZERO and (units > ZERO or part > ZERO) then u, r = refilled(now - since, rate, den, units) end
        since = now
      end
      for _ = 1, 2 do
        if u and (u < units or u == units and r < part) then
          if part < r then units, part = units - ONE, part + den end
          units, part = units - u, part - r
          if charges and (u > ZERO or r > ZERO) then charges = payed(charges, u, r, den) end
        else
          units, part = ZERO, ZERO
          if charges then charges = '' end
        end
        if not changes then break end
        u, r = by, ZERO
        if change == 'reset' then u = nil end
      end
      if changes then
        if charges == '' and holds > 0 then charges = put(CHARGE, ZERO, ZERO, mark, holds) end
        text = sub(text, 1, off - 1) .. put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, charges and #charges or 0)
          .. (charges or '') .. sub(text, off + 56 + length)
        need = 1
      end
    end
    slots[i] = put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, 0)
  else
    local a1, b1, a2, b2, a3, b3
    a1, b1, a2, b2, a3, b3, at = get('<llllll', asked, at)
    local from, to = past.spanned(a1, b1, a2, b2, a3, b3)
    local f, _, used, held, limit, crossed, epoch, w, all
    if off then f, _, used, held, limit, crossed, epoch = get(PERIOD, text, off + 8) end
    local there = f == from
    if not there then
      w, all = past.window(KEYS[p + 2], slot, text, off, from, to)
      used, held, limit, crossed, epoch = w.used, w.held, w.limit, w.crossed, w.epoch
      there = all
    end
    see(used, held)
    if changes and there then
      if change == 'reset' then
        used, epoch = ZERO, (epoch + 1) % 65536
      elseif by < used then
        used = used - by
      else
        used = ZERO
      end
      if all then
        w.used, w.epoch = used, epoch
        past.keeps(KEYS[p + 2], slot, all)
      else
        text = sub(text, 1, off - 1) .. put(PERIOD_SLOT, slot, from, to, used, held, limit, crossed, epoch, 0) .. sub(text, off + 56)
      end
      need = 1
    end
    slots[i] = put(PERIOD_SLOT, slot, from, to, used, held, limit, crossed, epoch, 0)
  end
end
if large then return 'E' end
if need > 0 then
  call('SET', KEYS[3], text, 'KEEPTTL')
  past.save()
  call('SET', KEYS[2], '', 'PX', ceil(remember / 1000))
end
return 'S' .. put('<l', now) .. concat(slots)
