-- What happens nearly always: it is settled for the first time and in time, all that it
-- holds is there and in its present window, and nothing else is to be done. Whatever else
-- it is, nothing was done here, and all begins again below.
if s and more == 0 then
  local state, _, marked = byte(s, 2, 4)
  local expires, _, places, _, n, at_entry, _, at_slot, at_names = get('<llHHHIII', s, 21) -- as RECORD has it
  if state == OPEN and marked == 0 and now < expires and places > 0 and places < 7 then
    local names = {get(sub(NAMES, 1, 4 + 3 * places), s, at_names)} -- the first is that of an exclusive value
    local parts = {false, false, false, false, false, false, false, false}
    local actual = {get('<LLLLLL', asked, at)}
    local got = call('MGET', unpack(names, 2, places + 1))
    local at_sinces = at_slot + 56 * n
    local p, text, new, done, till, shorter = 0, nil, nil, 1, 0, nil
    local passes = names[1] == ''
    for i = 1, passes and n or 0 do
      local place, flag, unit, amount, thresholds
      place, flag, unit, amount, thresholds, at_entry = get(ENTRY, s, at_entry)
      if place ~= p then
        if place ~= p + 1 then
          passes = false
          break
        end
        if p > 0 then
          if new then
            if #new ~= done - 25 then -- charges have become more, or fewer
              new = new .. sub(text, done)
              if #new < #text - 24 then
                shorter = shorter or {}
                new, shorter[p] = sub(text, 1, 24) .. new, true
              end
            end
            got[p] = new
          else
            got[p] = false
          end
        end
        p, text, new, done = place, got[place], nil, 1
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
      local used_up = actual[unit + 1]
      if flag % 8 >= 4 then -- rolling
        if kind == HOLD then
          local rate, den = get('<LL', s, at_entry + 16) -- as RATE has it
          local slot, mark = sub(s, at_slot, at_slot + 7), get('<l', s, at_slot + 40)
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
          if now > since then
            if units + part > 0 then
              local refill, r = (now - since) * rate, 0
              local whole = floor(refill / den)
              if refill < 4503599627370496 then
                r = refill - whole * den
                if r < 0 then whole, r = whole - 1, r + den elseif r >= den then whole, r = whole + 1, r - den end
              elseif whole < units + 2 then -- it is not exact
                passes = false
                break
              end
              if whole < units or whole == units and r < part then
                if part < r then units, part = units - 1, part + den end
                units, part = units - whole, part - r
                if charges then -- as payed does
                  local last, n, left = #charges - 27, 0, ''
                  while last > 0 do
                    local u, p, m, h = get(CHARGE, charges, last)
                    n = n + h
                    if whole < u or whole == u and r < p then
                      if p < r then u, p = u - 1, p + den end
                      left = sub(charges, 1, last - 1) .. put(CHARGE, u - whole, p - r, m, n)
                      break
                    end
                    if r < p then whole, r = whole - 1, r + den end
                    whole, r, last = whole - u, r - p, last - 28
                  end
                  charges = left
                end
              else
                units, part = 0, 0
                if charges then charges = '' end
              end
            end
            since = now
          end
          if used_up < amount then
            local back = amount - used_up
            if charges then
              if charges ~= '' then
                local w, r
                charges, w, r = refunded(charges, back, mark, den)
                if part < r then units, part = units - 1, part + den end
                units, part = units - w, part - r
              end
            elseif mark == count then
              if back < units or back == units and part > 0 then units = units - back else units, part = 0, 0 end
            end
          end
          held, holds = held - amount, holds - 1
          if holds <= 0 then
            charges = nil
          elseif charges and charges ~= '' then
            charges = released(charges, mark, den)
          end
          if used_up > amount then
            units, count = units + used_up - amount, count + 1
            if charges then -- as charged does
              local last, more, p = #charges - 27, used_up - amount, 0
              if last >= CHARGES - 27 then
                passes = false
                break
              end
              if last > 0 then
                local u, q, _, h = get(CHARGE, charges, last)
                if h == 0 then more, p, charges = more + u, q, sub(charges, 1, last - 1) end
              end
              charges = charges .. put(CHARGE, more, p, count, 0)
            end
          end
          local lasts = forget
          if rate > 0 then lasts = (units + 1) * den / rate + remember end
          if lasts > forget then lasts = forget end
          if now + lasts > till then
            passes = false
            break
          end
          local put_in = put(BUCKET_SLOT, slot, units, part, since, held, count, holds, charges and #charges or 0)
          parts[i + 3] = put_in
          local more = charges or ''
          if not new then
            if off > 25 then new = sub(text, 25, off - 1) .. put_in .. more elseif charges then new = put_in .. charges else new = put_in end
          elseif off > done then
            new = new .. sub(text, done, off - 1) .. put_in .. more
          else
            new = new .. put_in .. more
          end
          done = off + 56 + length
        else
          parts[i + 3] = sub(s, at_slot, at_slot + 55)
        end
        at_entry = at_entry + 32
      else
        if kind == COUNT then
          parts[i + 3] = sub(s, at_slot, at_slot + 55)
        else
          local key = sub(s, at_slot, at_slot + 23) -- its name and window
          local off = find(text, key, done > 25 and done or 25, true)
          if not off then
            passes = false
            break
          end
          local used, held, rest = get('<LLc16', text, off + 24)
          if used > 4503599627370496 or held > 4503599627370496 then
            passes = false
            break
          end
          held = held - amount
          if kind == HOLD then
            used = used + used_up
            if thresholds > 0 then
              local reached = get('<L', s, at_entry + 2)
              if used >= reached then -- perhaps it has crossed another one
                local crossed = get('<H', rest, 9)
                for j = thresholds - 1, 0, -1 do
                  local percent, reached = get('<HL', s, at_entry + 10 * j)
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
          local put_in = put('<c24LLc16', key, used, held, rest)
          parts[i + 3] = put_in
          if not new then
            if off > 25 then new = sub(text, 25, off - 1) .. put_in else new = put_in end
          elseif off > done then
            new = new .. sub(text, done, off - 1) .. put_in
          else
            new = new .. put_in
          end
          done = off + 56
        end
        at_entry = at_entry + 10 * thresholds
      end
      at_slot = at_slot + 56
    end
    if passes and p == places then
      if new then
        if #new ~= done - 25 then -- charges have become more, or fewer
          new = new .. sub(text, done)
          if #new < #text - 24 then
            shorter = shorter or {}
            new, shorter[p] = sub(text, 1, 24) .. new, true
          end
        end
        got[p] = new
      else
        got[p] = false
      end
      for i = 1, places do
        if shorter and shorter[i] then
          call('SET', names[i + 1], got[i], 'KEEPTTL')
        elseif got[i] then
          call('SETRANGE', names[i + 1], '24', got[i]) -- beyond what an account begins with
        end
      end
      call('ZREM', KEYS[1], name)
      parts[1], parts[2], parts[3] = put('<BBBBIi', 1, SETTLED_SIMPLY, 0, 0, low, high), s, sub(asked, at, at + 47)
      s = concat(parts, '', 1, n + 3)
      call('SET', name, s, 'PX', ARGV[4])
      if KEYS[3] then
        local l, h = 0, 0
        local last = call('GET', KEYS[3])
        if last then l, h = get('<Ii', last) end
        if high2 > h or high2 == h and low2 > l then
          call('SET', KEYS[3], put('<Ii', low2, high2), 'PX', ceil((remember + DAY) / 1000))
        end
      end
      return s
    end
  end
end
