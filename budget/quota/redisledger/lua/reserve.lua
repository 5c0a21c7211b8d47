-- Reserve takes all entries, or none. Its keys are the index, the reservation, the
-- accounts, and that of an exclusive value if there is one. What is not always needed of
-- what it is asked comes last.
local rest, asked, life = ARGV[1], ARGV[2], ARGV[3]
local places, entries, offset, still, ttl, horizon, low, high, score, digits, flags_at, at_spans, flag, place, at
places, entries, offset, still, ttl, remember, forget, keep, horizon, low, high, score, digits, flags_at, at_spans, flag, place, at =
  get('<HHlBlllHllllc16IIBH', asked)
now = call('TIME')
now = now[1] * 1000000 + now[2] + offset
if still == 1 then now = offset end -- a test's clock, which stands still
local expires = now + ttl
-- FAST

local past, first, behind
local got = call('MGET', unpack(KEYS, 2))
if got[1] then
  past = unfoldrepeat() -- RARE
  return 'R' .. past(got[1])
end
for p = 1, places do
  if got[p + 1] and now >= get('<l', got[p + 1], 17) then
    past = unfold() -- RARE
    if not first then
      first, behind = sweeping(past)()
      if large then return 'E' end
      got = call('MGET', unpack(KEYS, 2))
    end
    if not behind and got[p + 1] then
      call('SETRANGE', KEYS[p + 2], 16, put('<l', first))
      got[p + 1] = sub(got[p + 1], 1, 16) .. put('<l', first) .. sub(got[p + 1], 25)
    end
  end
end

local code, denied, never, retry, wait, over, taking = 'T', 0, 0, 0, 0, false, true
local exclusive = KEYS[places + 3]
if exclusive and got[places + 2] then
  local other = get('<l', got[places + 2])
  if other > now then code, retry, taking = 'H', other - now, false end
end
-- The windows of calendar counters: those in which they are for who asks, unless it is
-- another time here.
local elsewhere = now < low or now >= high
if elsewhere then
  past = past or unfold() -- RARE
end

-- Of each entry its slot, and flags if there are any. Of each account what the store
-- has, what comes in its place, up to a byte, and until when it is needed.
local slots, flags = {}, nil
local texts, news, ats, needs
-- All entries are taken one after the other, until one is denied: then none is, and
-- all are only looked at.
repeat
  local all_fit, at_entry, at_span, flag, place = true, at, at_spans, flag, place
  local p, text, new, done, need = 0, nil, '', 1, 0
  texts, news, ats, needs = {}, {}, {}, {}
  for i = 1, entries do
    if place ~= p then
      if p > 0 then news[p], ats[p], needs[p] = new, done, need end
      p, text, new, done, need = place, texts[place], news[place], ats[place], needs[place]
      if not text then
        text, new, done, need = got[p + 1] or put('<lll', now, 0, NEVER), '', 1, 0
        texts[p] = text
      end
    end
    local kind, rolling, soft, observed = flag % 4, flag % 8 >= 4, flag % 16 >= 8, flag % 32 >= 16
    local unlimited, crosses = flag % 64 >= 32, flag >= 64
    local said, crossing, no, after, hopeless = 0, 0, false, NEVER, false
    local slot, amount
    if rolling then
      local burst, rate, den, longest
      slot, amount, burst, rate, den, longest, flag, place, at_entry = get('<c8LLLLlBH', asked, at_entry)
      local want = amount
      if kind == CHECK then
        said = PASSED
        if want < ONE then want = ONE end
      end
      local off = find(text, slot, done > 25 and done or 25, true)
      if not off and done > 25 then -- perhaps it is one of those before
        text = new .. sub(text, done)
        new, done = sub(text, 1, 24), 25
        texts[p] = text
        off = find(text, slot, 25, true)
      end
      local units, part, since, held, mark, holds, length, charges = ZERO, ZERO, now, ZERO, 0, 0, 0, nil
      if off then
        units, part, since, held, mark, holds, length = get(BUCKET, text, off + 8)
        see(units, held)
        if length > 0 then
          charges = sub(text, off + 56, off + 55 + length)
        elseif holds > 0 then
          charges = put(CHARGE, units, part, mark, holds)
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
      if unlimited then
        said = PASSED
      elseif want > ZERO then
        local t = 0
        if units + want >= burst then t = duration(units + want - burst, part, den, rate) end
        if rate > ZERO and t <= longest and t < NEVER and want < MOST - units and want <= MOST - held then
          if t > wait and not observed then wait = t end
        elseif observed then
          said = PASSED + OVER
        else
          no = true
          local full = 0
          if want > burst then full = duration(want - burst, ZERO, den, rate) end
          if full > longest or full >= NEVER or rate == ZERO then
            hopeless = true
          elseif t < NEVER then
            after = t - longest
            if after < 1 then after = 1 end
          end
        end
      end
      if taking and not no and said % 2 == 0 then
        units, mark = units + amount, mark + 1
        local n = 0
        if kind == HOLD then n, held, holds = 1, held + amount, holds + 1 end
        if charges then charges = charged(charges, amount, mark, n, den) end
        local s = put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, charges and #charges or 0)
        slots[i] = s
        if charges then s = s .. charges end
        if not off then off = #text + 1 end
        if off > done then new = new .. sub(text, done, off - 1) .. s else new = new .. s end
        done = off + length
        local t = duration(units, part, den, rate) + remember
        if t > forget then t = forget end
        if now + t > need then need = now + t end
      else
        slots[i] = put(BUCKET_SLOT, slot, units, part, since, held, mark, holds, 0)
      end
    else -- a calendar's
      local from, to, limit, most, hard, _
      slot, from, to, limit, amount, most, flag, place, hard, at_entry = get('<c8llc8LLBHL', asked, at_entry)
      if elsewhere then
        local a1, b1, a3, b3
        a1, b1, a3, b3, at_span = get('<llll', asked, at_span)
        from, to = past.spanned(a1, b1, from, to, a3, b3)
      end
      local want = amount
      if kind == CHECK then
        said = PASSED
        if want < ONE then want = ONE end
      end
      local off = find(text, slot, done > 25 and done or 25, true)
      if not off and done > 25 then -- perhaps it is one of those before
        text = new .. sub(text, done)
        new, done = sub(text, 1, 24), 25
        texts[p] = text
        off = find(text, slot, 25, true)
      end
      local f, t, used, held, crossed, epoch, w, all = nil, nil, ZERO, ZERO, 0, 0, nil, nil
      if off then f, t, used, held, _, crossed, epoch = get(PERIOD, text, off + 8) end
      if off and f ~= from then
        past = past or unfold() -- RARE
        w, all = past.window(KEYS[p + 2], slot, text, off, from, to)
        used, held, crossed, epoch = w.used, w.held, w.crossed, w.epoch
      end
      local total = sum(used, held)
      see(total, want)
      if want > ZERO and (total > most or want > most - total) then
        if soft and total <= hard and want <= hard - total then
          said = said + OVER
        elseif observed and want <= MOST - total then
          said = said + OVER
        else
          no = true
          if want > hard then
            hopeless = true
          elseif to < NEVER then
            after = to - now
            if after < 0 then after = 0 end
          end
        end
      end
      local thresholds = 0
      if crosses then thresholds, at_entry = get('<B', asked, at_entry) end
      if taking and not no and said % 2 == 0 then
        if kind == COUNT then
          used = used + amount
          for j = thresholds - 1, 0, -1 do
            local percent, reached = get('<HL', asked, at_entry + 10 * j)
            if percent <= crossed then break end
            if used >= reached then
              crossing, crossed = percent, percent
              break
            end
          end
        else
          held = held + amount
        end
        local s = put(PERIOD_SLOT, slot, from, to, used, held, limit, crossed, epoch, 0)
        slots[i] = s
        if all then
          w.used, w.held, w.limit, w.crossed = used, held, limit, crossed
          past.keeps(KEYS[p + 2], slot, all)
        else
          local length = 56
          if w then past.shelve(KEYS[p + 2], slot, text, off) end
          if not off then off, length = #text + 1, 0 end
          if off > done then new = new .. sub(text, done, off - 1) .. s else new = new .. s end
          done = off + length
        end
        t = 0
        if to < NEVER then t = to + keep * (to - from) elseif used > ZERO then t = NEVER end
        if t > now + forget then t = now + forget end
        if t > need then need = t end
      else
        slots[i] = put(PERIOD_SLOT, slot, from, to, used, held, limit, crossed, epoch, 0)
      end
      at_entry = at_entry + 10 * thresholds
    end
    if said > 0 or crossing > 0 then
      flags = flags or {}
      flags[i] = put('<BH', said, crossing)
      if said >= OVER then over = true end
    end
    if no then
      if taking then
        all_fit = false
        break
      end
      if code == 'D' then
        if denied == 0 then
          denied = i
          if hopeless then never = 1 end
        end
        if after > retry then retry = after end
      end
    end
  end
  if p > 0 then news[p], ats[p], needs[p] = new, done, need end
  if not all_fit then
    code, taking, wait, over, flags = 'D', false, 0, false, nil
    if past then past.forget() end
  end
until all_fit
if large then return 'E' end

-- Expired holds that are still to be swept deny nobody.
if behind and (code == 'D' or code == 'T' and over) then return 'B' end
local taken, marked = concat(slots), 0
if flags then
  marked = 1
  for i = 1, entries do flags[i] = flags[i] or '\0\0\0' end
  flags = concat(flags)
  rest = sub(rest, 1, flags_at) .. flags
end
if code ~= 'T' then return code .. put('<lHBll', now, denied, never, retry, 0) .. taken .. (flags or '') end

local sinces, longer = '', false
for p = 1, places do
  local text, new, done, need = texts[p], news[p], ats[p], needs[p]
  local since, till, earliest = get(ACCOUNT, text)
  sinces = sinces .. since
  if need < expires + remember then need = expires + remember end
  if done <= #text then new = new .. sub(text, done) end
  if need > till or expires < earliest then
    local ms
    if need > till then
      till, longer = need + SPARE, true
      ms = ceil((till - now) / 1000)
    end
    if expires < earliest then earliest = expires end
    new = put(ACCOUNT, since, till, earliest) .. sub(new, 25)
    if ms then call('SET', KEYS[p + 2], new, 'PX', ms) else call('SET', KEYS[p + 2], new, 'KEEPTTL') end
  elseif done > 1 then
    call('SET', KEYS[p + 2], new, 'KEEPTTL')
  end
end
call('SET', KEYS[2], put('<BBBBIilll', 1, OPEN, 0, marked, 0, 0, now, expires, wait) .. rest .. taken .. sinces, 'PX', life)
call('ZADD', KEYS[1], expires, KEYS[2])
if longer then -- the index, too
  call('ZADD', KEYS[1], 'inf', '')
  local ms = ceil((ttl + remember + forget + DAY) / 1000)
  if call('PEXPIRE', KEYS[1], ms, 'GT') == 0 then call('PEXPIRE', KEYS[1], ms, 'NX') end
end
if past then past.save() end
if exclusive then
  call('SET', exclusive, put('<l', expires) .. KEYS[2], 'PX', ceil((ttl + SPARE) / 1000))
end
return 'T' .. put('<lHBll', now, 0, 0, 0, wait) .. taken .. (flags or '')
