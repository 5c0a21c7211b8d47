-- What happens nearly always: it is settled for the first time and in time, all that it
-- holds is there and in its present window, and nothing else is to be done. Whatever else
-- it is, nothing was done here, and all begins again below.
if s and more == 0 and not KEYS[3] then
  local state, late, marked, expires, places, entries, n, at_entry, _, at_slot, at_name =
    get('<xBBBxxxxxxxxxxxxxxxxi8xxxxxxxxHHHI4I4I4', s)
  local exclusive
  exclusive, at_name = get('<Hc0', s, at_name)
  if state == OPEN and marked == 0 and now < expires and exclusive == '' and places > 0 then
    local names, news, parts = {false, false, false, false}, {false, false, false, false}, {false, false, false, false, false}
    for p = 1, places do names[p], at_name = get('<Hc0', s, at_name) end
    local got = call('MGET', unpack(names, 1, places))
    local at_sinces = at_slot + 56 * n
    local p, text, new, done, till = 0, nil, '', 1, 0
    local unit, used_up = -1, 0
    local passes = true
    for i = 1, n do
      local place, flag, u, amount, thresholds
      place, flag, u, amount, thresholds, at_entry = get(ENTRY, s, at_entry)
      if place ~= p then
        if place ~= p + 1 then
          passes = false
          break
        end
        if p > 0 then
          if done <= #text then new = new .. sub(text, done) end
          news[p] = new
        end
        p, text, new, done = place, got[place], '', 1
        if not text then
          passes = false
          break
        end
        local since, first
        since, till, first = get(ACCOUNT, text)
        if now >= first or till < now + remember or since ~= sub(s, at_sinces + 8 * p - 8, at_sinces + 8 * p - 1) then
          passes = false
          break
        end
      end
      local kind = flag % 4
      if kind == HOLD and u ~= unit then
        unit, used_up = u, get('<I8', asked, at + 8 * u)
      end
      if flag % 8 >= 4 then -- rolling
        local rate, den
        rate, den, at_entry = get(RATE, s, at_entry)
        if kind == HOLD then
          local slot, mark = get('<c8xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxi8', s, at_slot)
          local off = find(text, slot, done > 25 and done or 25, true)
          if not off then
            passes = false
            break
          end
          local units, part, since, held, count, holds, length = get(BUCKET, text, off + 8)
          if units > 4503599627370496 or held > 4503599627370496 then
            passes = false
            break
          end
          local charges = nil
          if length > 0 then
            charges = sub(text, off + 56, off + 55 + length)
          elseif holds > 1 then
            charges = put(CHARGE, units, part, count, holds)
          end
          local elapsed = now - since
          if elapsed > 0 then
            since = now
            if units + part > 0 then
              local whole, r = elapsed * rate, 0
              if whole < 4503599627370496 then
                local product = whole
                whole = floor(product / den)
                r = product - whole * den
                if r < 0 then whole, r = whole - 1, r + den elseif r >= den then whole, r = whole + 1, r - den end
              elseif rate > 0 then
                whole, r = refilled(elapsed, rate, den, units)
              end
              if whole and (whole < units or whole == units and r < part) then
                if part < r then units, part = units - 1, part + den end
                units, part = units - whole, part - r
                if charges then charges = payed(charges, whole, r, den) end
              else
                units, part = 0, 0
                if charges then charges = '' end
              end
            end
          end
          if used_up < amount then
            local back = amount - used_up
            if charges then
              local w, r
              charges, w, r = refunded(charges, back, mark, den)
              if part < r then units, part = units - 1, part + den end
              units, part = units - w, part - r
            elseif mark == count then
              if back < units or back == units and part > 0 then units = units - back else units, part = 0, 0 end
            end
          end
          held, holds = held - amount, holds - 1
          if charges then
            if holds > 0 then charges = released(charges, mark, den) else charges = nil end
          end
          if used_up > amount then
            units, count = units + used_up - amount, count + 1
            if charges then charges = charged(charges, used_up - amount, count, 0, den) end
            if amount == 0 then mark = count end
          end
          local lasts = forget
          if rate > 0 then lasts = (units + 1) * den / rate + remember end
          if lasts > forget then lasts = forget end
          if now + lasts > till then
            passes = false
            break
          end
          local put_in = put(BUCKET_SLOT, slot, units, part, since, held, count, holds, charges and #charges or 0)
          if charges then put_in = put_in .. charges end
          if off > done then new = new .. sub(text, done, off - 1) .. put_in else new = new .. put_in end
          done = off + 56 + length
          parts[i] = put('<xi8I8I8I8i8I8', mark, used_up, units, part, since, held)
        else
          parts[i] = put('<xi8I8I8I8i8I8', 0, 0, 0, 0, 0, 0)
        end
      else
        if kind == COUNT then
          parts[i] = put('<xI8I8c8I8I8xx', 0, 0, '\0\0\0\0\0\0\0\0', 0, 0)
        else
          local slot, span = get('<c8c16', s, at_slot)
          local off = find(text, slot, done > 25 and done or 25, true)
          if not off then
            passes = false
            break
          end
          local window, used, held, limit, other = get('<c16I8I8c8c8', text, off + 8)
          if window ~= span or used > 4503599627370496 or held > 4503599627370496 then
            passes = false
            break
          end
          held = held - amount
          local target = 0
          if kind == HOLD then
            target = used_up
            used = used + target
            if thresholds > 0 then
              local _, reached = get('<HI8', s, at_entry)
              if used >= reached then -- perhaps it has crossed another one
                local crossed = get('<H', other)
                for j = thresholds - 1, 0, -1 do
                  local percent
                  percent, reached = get('<HI8', s, at_entry + 10 * j)
                  if percent <= crossed then break end
                  if used >= reached then
                    passes = false
                    break
                  end
                end
                if not passes then break end
              end
            end
          end
          local put_in = put('<c8c16I8I8c8c8', slot, span, used, held, limit, other)
          if off > done then new = new .. sub(text, done, off - 1) .. put_in else new = new .. put_in end
          done = off + 56
          parts[i] = put('<xI8I8c8I8I8xx', target, target, other, used, held)
        end
        at_entry = at_entry + 10 * thresholds
      end
      at_slot = at_slot + 56
    end
    if passes and not large and p == places then
      if done <= #text then new = new .. sub(text, done) end
      news[p] = new
      for i = 1, places do call('SET', names[i], news[i], 'KEEPTTL') end
      call('ZREM', KEYS[1], name)
      s = '\1\1\0\0' .. put('<I4i4', low, high) .. sub(s, 13) .. concat(parts, '', 1, n)
      call('SET', name, s, 'PX', ARGV[4])
      return s
    end
    large = false
  end
end
