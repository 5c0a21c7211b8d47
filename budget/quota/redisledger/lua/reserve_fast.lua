-- What happens nearly always: all accounts and counters are there and in their present
-- windows, nothing has expired, nothing must live longer, and everything fits. Whatever
-- else it is, nothing was done here, and all begins again below.
if now >= low and now < high and places > 0 and not KEYS[places + 3] then
  local flag, place, at, wait, least = flag, place, at, 0, now + horizon
  local got = call('MGET', unpack(KEYS, 3, places + 2))
  -- What becomes the reservation, which is the answer.
  local parts = {false, rest, false, false, false, false, false, false, false, false}
  local p, text, new, done, till, shorter = 0, nil, nil, 1, 0, nil
  local passes = true
  for i = 1, entries do
    if flag >= 32 or flag % 4 == 3 or place < p or place > p + 1 then
      passes = false
      break
    end
    if place > p then
      if p > 0 then
        if #new ~= done - 25 then -- charges have become more, or fewer
          new = new .. sub(text, done)
          if #new < #text - 24 then
            shorter = shorter or {}
            new, shorter[p] = sub(text, 1, 24) .. new, true
          end
        end
        got[p] = new
      end
      p, text, new, done = place, got[place], nil, 1
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
      parts[entries + p + 2] = since
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
      units = units + amount
      if amount > 0 and units >= burst then
        local lacks = (units - burst) * den + part
        if rate == 0 or lacks >= 4503599627370496 then
          passes = false
          break
        end
        lacks = ceil(lacks / rate)
        if lacks > longest then
          passes = false
          break
        end
        if lacks > wait and not observed then wait = lacks end
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
      if charges then -- as charged does
        local last, more, p = #charges - 27, amount, 0
        if last >= CHARGES - 27 then
          passes = false
          break
        end
        if last > 0 then
          local u, q, _, h = get(CHARGE, charges, last)
          if h == 0 then more, p, charges = more + u, q, sub(charges, 1, last - 1) end
        end
        charges = charges .. put(CHARGE, more, p, mark, n)
      end
      s = put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, charges and #charges or 0)
      parts[i + 2] = s
      local more = charges or ''
      if not new then
        if off > 25 then new = sub(text, 25, off - 1) .. s .. more elseif charges then new = s .. charges else new = s end
      elseif off > done then
        new = new .. sub(text, done, off - 1) .. s .. more
      else
        new = new .. s .. more
      end
      done = off + 56 + length
    else
      local counts = flag % 4 == 1
      local key, limit, amount, most -- the slot's name and window are one text
      key, limit, amount, most, flag, place, at = get('<c24c8LLBH', asked, at)
      at = at + 8 -- what it may be beyond its limit
      off = find(text, key, done > 25 and done or 25, true)
      if not off then
        passes = false
        break
      end
      local used, held = get('<LL', text, off + 24)
      local total = used + held + amount
      if total > most and amount > 0 or total > 4503599627370496 then
        passes = false
        break
      end
      if counts then used = used + amount else held = held + amount end
      s = put('<c24LLc8c8', key, used, held, limit, sub(text, off + 48, off + 55))
      parts[i + 2] = s
      if not new then
        if off > 25 then new = sub(text, 25, off - 1) .. s else new = s end
      elseif off > done then
        new = new .. sub(text, done, off - 1) .. s
      else
        new = new .. s
      end
      done = off + 56
    end
  end
  if passes and p == places then
    if p > 0 then
      if #new ~= done - 25 then -- charges have become more, or fewer
        new = new .. sub(text, done)
        if #new < #text - 24 then
          shorter = shorter or {}
          new, shorter[p] = sub(text, 1, 24) .. new, true
        end
      end
      got[p] = new
    end
    parts[1] = put('<IIilll', 1, 0, 0, now, expires, wait) -- as RECORD has it
    local s = concat(parts, '', 1, entries + places + 2)
    if call('SET', KEYS[2], s, 'NX', 'PX', life) then
      for i = 1, places do
        if shorter and shorter[i] then
          call('SET', KEYS[i + 2], got[i], 'KEEPTTL')
        else
          call('SETRANGE', KEYS[i + 2], '24', got[i]) -- beyond what an account begins with
        end
      end
      if score > expires or score < expires - 10000000 then digits = expires end
      call('ZADD', KEYS[1], digits, KEYS[2])
      return s
    end
    return 'X' -- it is a repeat
  end
end
