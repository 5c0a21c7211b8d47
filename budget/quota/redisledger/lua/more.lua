-- append adds further entries of a settlement to a reservation that has not got them. It
-- returns what was used of those that came with this settlement or an earlier one, and
-- how many there were before. Their accounts are the last arguments.
local function append(s, said, called, asked, at, places, more)
  local version, was, late, marked, low, high, began, expires, wait, n0, entries, n, at_said, at_flags, at_slots, at_exclusive =
    get(RECORD, s)
  local at_sinces = at_slots + 56 * n
  local at_ended = at_sinces + 8 * n0
  local length, at_key = get('<H', s, at_exclusive)
  at_key = at_key + length
  local key, since, ask = {}, {}, {'MGET'}
  for p = 1, n0 do
    since[p] = sub(s, at_sinces + 8 * p - 8, at_sinces + 8 * p - 1)
    key[p], at_key = get('<Hc0', s, at_key)
    ask[p + 1] = key[p]
  end
  for p = 1, places do ask[n0 + p + 1] = ARGV[p + 4] end
  local got = call(unpack(ask))
  for p = 1, n0 + places do got[p] = got[p] and sub(got[p], 1, 8) or put('<l', now) end

  -- What is settled of it, by key and slot.
  local known, scan = {}, at_said
  for i = 1, n do
    local p, flag, _, thresholds
    p, flag, _, _, thresholds, scan = get(ENTRY, s, scan)
    if flag % 8 >= 4 then scan = scan + 32 end
    scan = scan + 10 * thresholds
    if (i > entries or flag % 4 == HOLD) and got[p] == since[p] then
      known[#key[p] .. ':' .. key[p] .. sub(s, at_slots + 56 * i - 56, at_slots + 56 * i - 49)] = i
    end
  end
  local at_names = scan

  local targets, added, n1, from, from_name = {}, 0, n0, 1, 1
  local sinces, keys, slots, saids, flags, names, ends = {}, {}, {}, {}, {}, {}, {}
  for i = 1, more do
    local begun, begun_name = from, from_name
    local p, flag, _, amount, thresholds
    p, flag, _, amount, thresholds, from = get(ENTRY, said, from)
    local rolling = flag % 8 >= 4
    if rolling then from = from + 32 end
    from = from + 10 * thresholds
    local slot, limit
    slot, limit, at = get('<c8c8', asked, at)
    _, from_name = get('<Hc0', called, from_name)
    local a1, b1, a2, b2, a3, b3
    if not rolling then
      a1, b1, a2, b2, a3, b3, at = get('<llllll', asked, at)
      a2, b2 = past.spanned(a1, b1, a2, b2, a3, b3)
    end
    local k = ARGV[p + 4]
    local old = known[#k .. ':' .. k .. slot]
    if old then
      if old > entries then targets[old] = amount end
    else
      local q
      for j = 1, n1 do
        if key[j] == k and since[j] == got[n0 + p] then q = j end
      end
      if not q then
        n1 = n1 + 1
        q, key[n1], since[n1] = n1, k, got[n0 + p]
        sinces[#sinces + 1], keys[#keys + 1] = since[q], put('<Hc0', #k, k)
      end
      added = added + 1
      targets[n + added] = amount
      saids[added], names[added] = put('<H', q) .. sub(said, begun + 2, from - 1), sub(called, begun_name, from_name - 1)
      if rolling then
        local passed = (flag % 64 >= 32 or flag % 4 == CHECK) and PASSED or 0
        flags[added] = put('<BH', passed, 0)
        slots[added] = put(BUCKET_SLOT, slot, ZERO, ZERO, now, ZERO, 0, 0, 0)
        ends[added] = put(BUCKET_ENDED, passed, 0, ZERO, ZERO, ZERO, now, ZERO)
      else
        flags[added] = put('<BH', 0, 0)
        slots[added] = put(PERIOD_SLOT, slot, a2, b2, ZERO, ZERO, limit, 0, 0, 0)
        ends[added] = put(PERIOD_ENDED, 0, ZERO, ZERO, 0, 0, 0, ZERO, ZERO, 0)
      end
    end
  end
  if added == 0 then return s, targets, n end

  local all_keys = sub(s, at_exclusive, at_key - 1) .. concat(keys)
  local all_said = sub(s, at_said, at_names - 1) .. concat(saids)
  local all_names = sub(s, at_names, at_flags - 1) .. concat(names)
  local all_flags = sub(s, at_flags, at_slots - 1) .. concat(flags)
  local all_slots = sub(s, at_slots, at_sinces - 1) .. concat(slots)
  local said_at = at_exclusive + #all_keys
  local flags_at = said_at + #all_said + #all_names
  local all = put(RECORD, version, was, late, 1, low, high, began, expires, wait, n1, entries, n + added,
    said_at, flags_at, flags_at + #all_flags) .. all_keys .. all_said .. all_names .. all_flags .. all_slots
    .. sub(s, at_sinces, at_ended - 1) .. concat(sinces) .. sub(s, at_ended)
  if was == SETTLED then all = all .. concat(ends) end
  return all, targets, n
end
return append
