-- plain writes of a reservation that was settled simply how each entry was, in the way of
-- any other.
local function plain(s)
  s = sub(s, 1, 12) .. sub(s, 25)
  local _, _, _, _, _, _, _, _, _, places, _, n, at_entry, _, at_slot = get(RECORD, s)
  local at_actual = at_slot + 56 * n + 8 * places
  local at_then, parts = at_actual + 48, {}
  for i = 1, n do
    local _, flag, unit, amount, thresholds
    _, flag, unit, amount, thresholds, at_entry = get(ENTRY, s, at_entry)
    local used = flag % 4 == HOLD and get('<L', s, at_actual + 8 * unit) or ZERO
    if flag % 8 >= 4 then
      at_entry = at_entry + 32
      local mark = get('<l', s, at_slot + 40)
      local units, part, since, held, count = get('<LLlLl', s, at_then + 8)
      if amount == ZERO then mark = count end
      parts[i] = put(BUCKET_ENDED, 0, mark, used, units, part, since, held)
    else
      local _, _, spent, held, _, _, epoch = get(PERIOD, s, at_then + 8)
      parts[i] = put(PERIOD_ENDED, 0, used, used, 0, epoch, 0, spent, held, 0)
    end
    at_entry, at_slot, at_then = at_entry + 10 * thresholds, at_slot + 56, at_then + 56
  end
  return '\1\1' .. sub(s, 3, at_actual - 1) .. concat(parts)
end
return plain
