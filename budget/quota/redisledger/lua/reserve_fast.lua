-- What happens nearly always: all accounts and counters are there and in their present
-- windows, nothing has expired, nothing must live longer, and everything fits. Whatever
-- else it is, nothing was done here, and all begins again below.
if now >= low and now < high and places > 0 and not KEYS[places + 3] then
  local flag, place, at, wait, least = flag, place, at, 0, now + horizon
  local got = call('MGET', unpack(KEYS, 3, places + 2))
  local slots = {false, false, false, false, false}
  local p, text, new, x, y, done, till, sinces = 0, nil, '', '', '', 1, 0, ''
  local passes = true
  for i = 1, entries do
    if flag >= 32 or flag % 4 == 3 or place < p or place > p + 1 then
      passes = false
      break
    end
    if place > p then
      if p > 0 then
        if done <= #text then y = y .. sub(text, done) end
        got[p] = new .. x .. y
      end
      p, text, done = place, got[place], 1
      if not text then
        passes = false
        break
      end
      local since, first
      since, till, first = get(ACCOUNT, text)
      if now >= first or expires < first or till < least then
        passes = false
        break
      end
      if p > 1 then sinces = sinces .. since else sinces = since end
    end
    local off, s
    if flag % 8 >= 4 then -- rolling
      local hold, observed = flag % 4 == 0, flag % 32 >= 16
      local slot, amount, burst, rate, den, longest
      slot, amount, burst, rate, den, longest, flag, place, at = get('<c8LLLLlBH', asked, at)
      off = find(text, slot, done > 25 and done or 25, true)
      if not off then
        passes = false
        break
      end
      local units, part, since, held, mark, holds, length = get(BUCKET, text, off + 8)
      if units > 4503599627370496 or held > 4503599627370496 then
        passes = false
        break
      end
      local charges = nil
      if length > 0 then
        charges = sub(text, off + 56, off + 55 + length)
      elseif holds > 0 then
        charges = put(CHARGE, units, part, mark, holds)
      end
      local elapsed = now - since
      if elapsed > 0 then
        since = now
        if units + part > 0 then
          local u, r = elapsed * rate, 0
          if u < 4503599627370496 then
            local whole = floor(u / den)
            r = u - whole * den
            if r < 0 then whole, r = whole - 1, r + den elseif r >= den then whole, r = whole + 1, r - den end
            u = whole
          elseif rate > 0 then
            u, r = refilled(elapsed, rate, den, units)
          end
          if u and (u < units or u == units and r < part) then
            if part < r then units, part = units - 1, part + den end
            units, part = units - u, part - r
            if charges then charges = payed(charges, u, r, den) end
          else
            units, part = 0, 0
            if charges then charges = '' end
          end
        end
      end
      units = units + amount
      if units >= burst then
        local t = duration(units - burst, part, den, rate)
        if amount > 0 and (t > longest or rate == 0) then
          passes = false
          break
        end
        if t > wait and amount > 0 and not observed then wait = t end
      end
      local lasts = forget
      if rate > 0 then lasts = (units + 1) * den / rate + remember end
      if lasts > forget then lasts = forget end
      if now + lasts > till then
        passes = false
        break
      end
      mark = mark + 1
      local n = 0
      if hold then n, held, holds = 1, held + amount, holds + 1 end
      if charges then charges = charged(charges, amount, mark, n, den) end
      s = put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, charges and #charges or 0)
      slots[i] = s
      if charges then s = s .. charges end
      if done == 1 then
        new, x, y = sub(text, 1, off - 1), s, ''
      elseif off > done then
        new, x, y = new .. x .. y .. sub(text, done, off - 1), s, ''
      elseif y == '' then
        y = s
      else
        new, x, y = new .. x .. y, s, ''
      end
      done = off + 56 + length
    else
      local counts = flag % 4 == 1
      local slot, span, limit, amount, most
      slot, span, limit, amount, most, flag, place, at = get('<c8c16c8LLxxxxxxxxBH', asked, at)
      off = find(text, slot, done > 25 and done or 25, true)
      if not off then
        passes = false
        break
      end
      local window, used, held, _, other = get('<c16LLc8c8', text, off + 8)
      local total = used + held + amount
      if window ~= span or total > most and amount > 0 or total > 4503599627370496 then
        passes = false
        break
      end
      if counts then used = used + amount else held = held + amount end
      s = put('<c8c16LLc8c8', slot, span, used, held, limit, other)
      slots[i] = s
      if done == 1 then
        new, x, y = sub(text, 1, off - 1), s, ''
      elseif off > done then
        new, x, y = new .. x .. y .. sub(text, done, off - 1), s, ''
      elseif y == '' then
        y = s
      else
        new, x, y = new .. x .. y, s, ''
      end
      done = off + 56
    end
  end
  if passes and not large and p == places then
    if p > 0 then
      if done <= #text then y = y .. sub(text, done) end
      got[p] = new .. x .. y
    end
    local taken = concat(slots, '', 1, entries)
    if call('SET', KEYS[2], '\1\0\0\0\0\0\0\0\0\0\0\0' .. put('<lll', now, expires, wait) .. rest .. taken .. sinces, 'NX', 'PX', life) then
      for i = 1, places do call('SET', KEYS[i + 2], got[i], 'KEEPTTL') end
      if score > expires or score < expires - 10000000 then digits = expires end
      call('ZADD', KEYS[1], digits, KEYS[2])
      return put('<BlHBll', 84, now, 0, 0, 0, wait) .. taken
    end
    return 'R' .. call('GET', KEYS[2])
  end
  large = false
end
