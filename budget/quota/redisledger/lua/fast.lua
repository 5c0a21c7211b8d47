-- Amounts as plain numbers, which are exact up to 2^53. A script that reads one
-- above 2^52 changes nothing and answers 'E'; its twin with exact.lua then runs in
-- its place. In formats, L stands for an amount and l for any other number of 8 bytes;
-- struct reads these faster than I8 and i8, which are the same where Redis runs.
local put, get = struct.pack, struct.unpack
local floor, ceil = math.floor, math.ceil
local ZERO, ONE, MOST = 0, 1, 9007199254740992
local NEVER = 4611686018427387904 -- a time, in microseconds
local large = false

local function see(a, b)
  if a > 4503599627370496 or b > 4503599627370496 then large = true end
end

-- a + b, at most MOST.
local function sum(a, b) return a + b end

-- What is refilled in some microseconds at rate units per den: units, and parts of
-- a unit of which there are den. nil if it is more than lacks and a unit.
local function refilled(elapsed, rate, den, lacks)
  local p = elapsed * rate
  local q = p / den
  if q >= lacks + 2 then return nil end
  q = floor(q)
  local r
  if p < 4503599627370496 then
    r = p - q * den
  else
    -- Both products in two numbers each (Dekker 1971), of which the second is what
    -- the first has lost in rounding. The differences are exact.
    local k = 134217729
    local t = k * elapsed; local ah = t - (t - elapsed); local al = elapsed - ah
    t = k * rate; local bh = t - (t - rate); local bl = rate - bh
    local lost = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    local p2 = q * den
    t = k * q; ah = t - (t - q); al = q - ah
    t = k * den; bh = t - (t - den); bl = den - bh
    r = (p - p2) + (lost - (((ah * bh - p2) + ah * bl + al * bh) + al * bl))
  end
  while r < 0 do q = q - 1; r = r + den end
  while r >= den do q = q + 1; r = r - den end
  return q, r
end

-- The microseconds in which units and parts are refilled, rounded up.
local function duration(units, part, den, rate)
  if units == 0 and part == 0 then return 0 end
  if rate <= 0 then return NEVER end
  local p = units * den + part
  if p < 4503599627370496 then return ceil(p / rate) end
  local q = floor(p / rate)
  if q > 1125899906842624 then large = true; return NEVER end -- 35 years
  local k = 134217729
  p = units * den
  local t = k * units; local ah = t - (t - units); local al = units - ah
  t = k * den; local bh = t - (t - den); local bl = den - bh
  local lost = ((ah * bh - p) + ah * bl + al * bh) + al * bl
  local p2 = q * rate
  t = k * q; ah = t - (t - q); al = q - ah
  t = k * rate; bh = t - (t - rate); bl = rate - bh
  local r = (p - p2) + (lost - (((ah * bh - p2) + ah * bl + al * bh) + al * bl)) + part
  while r > 0 do q = q + 1; r = r - rate end
  while r <= -rate do q = q - 1; r = r + rate end
  return q
end
