-- conclude ends a reservation, s under a name: its state becomes settled, released or
-- expired; or it corrects how it was settled. s becomes what is kept of it, or nil if an
-- amount is too large. The caller sees to what has ended before.
--
-- actual is what was used, by unit, and low and high are the number of the settlement.
-- targets are what was used of entries that came with a settlement, of which those
-- beyond old are new.
local _, was, late, marked, low0, high0, began, expires, wait, places, entries, n, at_said, at_flags, at_slots, at_exclusive =
  get(RECORD, s)
local at_sinces = at_slots + 56 * n
local at_ended = at_sinces + 8 * places
local names = {}
do
  local length, at = get('<H', s, at_exclusive)
  at = at + length
  for p = 1, places do names[p], at = get('<Hc0', s, at) end
end
local got = places > 0 and call('MGET', unpack(names, 1, places))
local open = was == OPEN
local lapsed = open and expires <= now
if state == SETTLED and (lapsed or was == EXPIRED) then late = 1 end

local parts, texts, news, ats, needs = {}, {}, {}, {}, {}
local p, text, new, done, need, gone = 0, nil, '', 1, 0, false
local at_entry, at_flag, at_slot, at_end = at_said, at_flags, at_slots, at_ended
for i = 1, n do
  local place, flag, unit, amount, thresholds
  place, flag, unit, amount, thresholds, at_entry = get(ENTRY, s, at_entry)
  local kind = flag % 4
  local settles, target = false, nil
  if state == SETTLED then
    if i > entries then
      settles = true
      target = targets and targets[i]
    elseif kind == HOLD then
      settles, target = true, actual[unit]
    end
  end
  if place ~= p then
    if p > 0 then news[p], ats[p], needs[p] = new, done, need end
    p, text, new, done, need = place, texts[place], news[place], ats[place], needs[place]
    if not text then
      text, new, done, need = got[p] or put('<lll', now, 0, NEVER), '', 1, 0
      texts[p] = text
    end
    gone = sub(text, 1, 8) ~= sub(s, at_sinces + 8 * p - 8, at_sinces + 8 * p - 1)
  end
  local said = byte(s, at_flag)
  at_flag = at_flag + 3
  local slot, off = sub(s, at_slot, at_slot + 7), nil
  local gives = open and (kind == HOLD or kind == LEASE)
  if gone then
    gives, settles = false, false
  elseif gives or settles then
    off = find(text, slot, done > 25 and done or 25, true)
    if not off and done > 25 then -- perhaps it is one of those before
      text = new .. sub(text, done)
      new, done = sub(text, 1, 24), 25
      texts[p] = text
      off = find(text, slot, 25, true)
    end
  end

  if flag % 8 >= 4 then -- rolling
    local rate, den
    rate, den, at_entry = get(RATE, s, at_entry)
    local mark, spent = 0, ZERO
    if was == SETTLED then
      said, mark, spent = get('<BlL', s, at_end)
      at_end = at_end + 49
    else
      mark = get('<l', s, at_slot + 40)
    end
    local units, part, since, held = ZERO, ZERO, now, ZERO
    if gives or settles then
      local count, holds, length, charges = 0, 0, 0, nil
      if off then
        units, part, since, held, count, holds, length = get(BUCKET, text, off + 8)
        see(units, held)
        if length > 0 then
          charges = sub(text, off + 56, off + 55 + length)
        elseif holds > 0 then
          charges = put(CHARGE, units, part, count, holds)
        end
        length = length + 56
        if now > since then
          if rate > ZERO and (units > ZERO or part > ZERO) then
            local u, r = refilled(now - since, rate, den, units)
            if u and (u < units or u == units and r < part) then
              if part < r then units, part = units - ONE, part + den end
              units, part = units - u, part - r
              if charges then charges = payed(charges, u, r, den) end
            else
              units, part = ZERO, ZERO
              if charges then charges = '' end
            end
          end
          since = now
        end
      end
      if said % 2 == 0 then
        -- What of the hold, or of what was used, is given back.
        local before, back = spent, ZERO
        if gives then
          before = amount
          if not settles or lapsed then
            before, back = ZERO, amount
          elseif target < amount then
            back = amount - target
          end
        elseif target and target < spent then
          back = spent - target
        end
        if back > ZERO then
          if charges then
            local u, r
            charges, u, r = refunded(charges, back, mark, den)
            if part < r then units, part = units - ONE, part + den end
            units, part = units - u, part - r
          elseif mark == count then -- else it became one with newer charges
            if back < units or back == units and part > ZERO then units = units - back else units, part = ZERO, ZERO end
          end
        end
        if gives then
          held, holds = held - amount, holds - 1
          if holds > 0 then charges = released(charges, mark, den) else charges = nil end
        end
        if target and target > before then
          local more = target - before
          if more > MOST - ONE - units then more = MOST - ONE - units end
          units, count = units + more, count + 1
          if charges then charges = charged(charges, more, count, 0, den) end
          if before == ZERO then mark = count end
        end
        local put_in = put(BUCKET_SLOT, slot, units, part, since, held, count, holds, charges and #charges or 0)
        if charges then put_in = put_in .. charges end
        if not off then off = #text + 1 end
        if off > done then new = new .. sub(text, done, off - 1) .. put_in else new = new .. put_in end
        done = off + length
        local t = duration(units, part, den, rate) + remember
        if t > forget then t = forget end
        if now + t > need then need = now + t end
      end
    end
    if settles and need == 0 then need = now end -- else it would seem to be erased
    if state == SETTLED then
      if gone then said = ERASED end
      parts[i] = put(BUCKET_ENDED, said, mark, target or spent, units, part, since, held)
    end
  else -- a calendar's
    local spent, kept, since, _ = ZERO, ZERO, 0, nil
    if was == SETTLED then
      said, spent, kept, _, since = get('<BLLHH', s, at_end)
      at_end = at_end + 43
    end
    local used, held, crossing = ZERO, ZERO, 0
    if gives or settles then
      local from, to = get('<ll', s, at_slot + 8)
      local f, _, last, crossed, epoch, w, all
      if off then f, _, used, held, last, crossed, epoch = get(PERIOD, text, off + 8) end
      if f ~= from then
        past = past or unfold() -- RARE
        w, all = past.window(names[p], slot, text, off, from, to)
        used, held, last, crossed, epoch = w.used, w.held, w.limit, w.crossed, w.epoch
      end
      if old and i > old then last = sub(s, at_slot + 40, at_slot + 47) end
      see(used, held)
      if gives then held = held - amount end
      if target then
        if since ~= epoch then -- what was booked before was cleared by a reset
          kept, since = ZERO, epoch
        end
        if target < spent then
          local back = spent - target
          if back > kept then back = kept end
          kept = kept - back
          if back > used then back = used end
          used = used - back
        else
          local more = target - spent
          used, kept = sum(used, more), kept + more
        end
      end
      if settles then
        for j = thresholds - 1, 0, -1 do
          local percent, reached = get('<HL', s, at_entry + 10 * j)
          if percent <= crossed then break end
          if used >= reached then
            crossing, crossed = percent, percent
            break
          end
        end
      end
      if all then
        w.used, w.held, w.limit, w.crossed = used, held, last, crossed
        past.keeps(names[p], slot, all)
      else
        local length = 56
        if w and off then past.shelve(names[p], slot, text, off) end
        if not off then off, length = #text + 1, 0 end
        local put_in = put(PERIOD_SLOT, slot, from, to, used, held, last, crossed, epoch, 0)
        if off > done then new = new .. sub(text, done, off - 1) .. put_in else new = new .. put_in end
        done = off + length
      end
      local t = 0
      if to < NEVER then t = to + keep * (to - from) elseif used > ZERO then t = NEVER end
      if t > now + forget then t = now + forget end
      if t < now + remember then t = now + remember end
      if t > need then need = t end
    end
    if state == SETTLED then
      if gone then said = ERASED end
      parts[i] = put(PERIOD_ENDED, said, target or spent, kept, 0, since, 0, used, held, crossing)
    end
  end
  at_entry = at_entry + 10 * thresholds
  at_slot = at_slot + 56
end
if p > 0 then news[p], ats[p], needs[p] = new, done, need end

if large then
  s = nil
else
  for p = 1, places do
    local text, new, done, need = texts[p], news[p], ats[p], needs[p]
    if need and need > 0 then
      local since, till, first = get(ACCOUNT, text)
      if need < now + remember then need = now + remember end
      if done <= #text then new = new .. sub(text, done) end
      if need > till then
        till = need + SPARE
        call('SET', names[p], put(ACCOUNT, since, till, first) .. sub(new, 25), 'PX', ceil((till - now) / 1000))
        local ms = ceil((till - now + DAY) / 1000) -- of the index, which outlives it
        if call('PEXPIRE', KEYS[1], ms, 'GT') == 0 then call('PEXPIRE', KEYS[1], ms, 'NX') end
      elseif done > 1 then
        call('SET', names[p], new, 'KEEPTTL')
      end
    end
  end
  if past then past.save() end
  if open then
    call('ZREM', KEYS[1], name)
    local exclusive = get('<Hc0', s, at_exclusive)
    if exclusive ~= '' then
      local other = call('GET', exclusive)
      if other and sub(other, 9) == name then call('DEL', exclusive) end
    end
  end
  s = put('<BBBBIi', 1, state, late, marked, low or low0, high or high0) .. sub(s, 13, at_ended - 1)
  if state == SETTLED then s = s .. concat(parts) end
  call('SET', name, s, 'PX', ceil(remember / 1000))
end
