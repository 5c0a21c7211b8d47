-- found is where the newest charge is that is not newer than a mark, or −27.
local function found(charges, mark)
  local low, high = 0, #charges / 28
  while low < high do
    local mid = ceil((low + high) / 2)
    local _, _, m = get(CHARGE, charges, mid * 28 - 27)
    if m <= mark then low = mid else high = mid - 1 end
  end
  return low * 28 - 27
end

-- refunded gives back a part of what was taken under a mark, and returns what is left
-- of the charges, and how much that was.
local function refunded(charges, units, mark, den)
  local at = found(charges, mark)
  local after = sub(charges, at + 28)
  local rest, part, holds, left = units, ZERO, 0, ''
  while at > 0 do
    local u, p, m, n = get(CHARGE, charges, at)
    holds = holds + n
    if rest < u or rest == u and part < p then
      if p < part then u, p = u - ONE, p + den end
      left = put(CHARGE, u - rest, p - part, m, holds)
      rest, part = ZERO, ZERO
      break
    end
    if part < p then rest, part = rest - ONE, part + den end
    rest, part = rest - u, part - p
    at = at - 28
  end
  local before = at > 0 and sub(charges, 1, at - 1) or ''
  local back = ZERO
  if part > ZERO then units, back = units - ONE, den - part end
  return before .. left .. after, units - rest, back
end

-- released ends a hold, after its refund.
local function released(charges, mark, den)
  local at = found(charges, mark)
  if at < 0 then return charges end -- its charge was paid, and all before it
  local u, p, m, n = get(CHARGE, charges, at)
  if n == 1 and at + 28 < #charges then -- it becomes one with the next newer
    local u2, p2, m2, n2 = get(CHARGE, charges, at + 28)
    u, p = u + u2, p + p2
    if p >= den then u, p = u + ONE, p - den end
    return sub(charges, 1, at - 1) .. put(CHARGE, u, p, m2, n2) .. sub(charges, at + 56)
  end
  return sub(charges, 1, at - 1) .. put(CHARGE, u, p, m, n - 1) .. sub(charges, at + 28)
end
