-- Buckets ----------------------------------------------------------------------------
--
-- A bucket is what is missing from a full burst, in units and parts of one of which
-- there are den, and while something is held, of which charges that consists. It is
-- quota.Memory's arithmetic, which says why it is so: refill pays the newest charge
-- first, a refund the charge of its own cost and then older ones.
--
-- One charge that has the bucket's mark and all its holds is not written: it is all that
-- is missing.

-- payed is what is left of charges when less than all of them is paid.
local function payed(charges, units, part, den)
  local holds, at = 0, #charges - 27
  while at > 0 do
    local u, p, mark, n = get(CHARGE, charges, at)
    holds = holds + n
    if units < u or units == u and part < p then
      if p < part then u, p = u - ONE, p + den end
      return sub(charges, 1, at - 1) .. put(CHARGE, u - units, p - part, mark, holds)
    end
    if part < p then units, part = units - ONE, part + den end
    units, part = units - u, part - p
    at = at - 28
  end
  return ''
end

-- charged adds a charge, with a hold or without one.
local function charged(charges, units, mark, holds, den)
  local part, at = ZERO, #charges - 27
  if at > 0 then
    local u, p, _, n = get(CHARGE, charges, at)
    if n == 0 then -- it becomes one with this
      units, part, charges = u + units, p, sub(charges, 1, at - 1)
    end
  end
  if #charges >= CHARGES then
    -- The two oldest become one, as if all of it was taken when the newer was. So the
    -- holds of the older one get nothing back any more.
    local u, p = get(CHARGE, charges, 1)
    local u2, p2, m2, n2 = get(CHARGE, charges, 29)
    u, p = u + u2, p + p2
    if p >= den then u, p = u + ONE, p - den end
    charges = put(CHARGE, u, p, m2, n2) .. sub(charges, 57)
  end
  return charges .. put(CHARGE, units, part, mark, holds)
end
