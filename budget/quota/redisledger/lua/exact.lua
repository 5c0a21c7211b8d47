-- Amounts as limbs of 24 bits, the lowest first and none of the highest zero, which
-- are exact however large they are. All else is as in fast.lua.
local floor, ceil = math.floor, math.ceil
local NEVER = 4611686018427387904
local BASE = 16777216
local large = false
local limbs = {}

local function amount(t)
  while t[#t] == 0 do t[#t] = nil end
  return setmetatable(t, limbs)
end

-- A plain number, not negative, below 2^53.
local function exactly(n)
  local t = {}
  while n > 0 do
    t[#t + 1] = n % BASE
    n = floor(n / BASE)
  end
  return amount(t)
end

-- About how much it is.
local function about(a)
  local n = 0
  for i = #a, 1, -1 do n = n * BASE + a[i] end
  return n
end

function limbs.__eq(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

function limbs.__lt(a, b)
  if #a ~= #b then return #a < #b end
  for i = #a, 1, -1 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end

function limbs.__le(a, b) return not (b < a) end

function limbs.__add(a, b)
  local t, carry = {}, 0
  for i = 1, math.max(#a, #b) do
    local x = (a[i] or 0) + (b[i] or 0) + carry
    carry = x >= BASE and 1 or 0
    t[i] = x - carry * BASE
  end
  if carry > 0 then t[#t + 1] = carry end
  return amount(t)
end

-- b must not be above a.
function limbs.__sub(a, b)
  local t, borrow = {}, 0
  for i = 1, #a do
    local x = a[i] - (b[i] or 0) - borrow
    borrow = x < 0 and 1 or 0
    t[i] = x + borrow * BASE
  end
  return amount(t)
end

function limbs.__mul(a, b)
  local t = {}
  for i = 1, #a + #b do t[i] = 0 end
  for i = 1, #a do
    local carry = 0
    for j = 1, #b do
      local x = t[i + j - 1] + a[i] * b[j] + carry
      carry = floor(x / BASE)
      t[i + j - 1] = x - carry * BASE
    end
    t[i + #b] = carry
  end
  return amount(t)
end

local ZERO, ONE = exactly(0), exactly(1)
local MOST = amount({BASE - 1, BASE - 1, 32767}) -- 2^63 - 1

-- The quotient and what is left, by long division. A digit is reckoned from about
-- how much both are, which is wrong by one at most.
local function divide(a, b)
  local q, rest, of = {}, ZERO, about(b)
  for i = #a, 1, -1 do
    local t = {a[i]}
    for j = 1, #rest do t[j + 1] = rest[j] end
    rest = amount(t)
    local digit = floor(about(rest) / of)
    local part = exactly(digit) * b
    while rest < part do digit = digit - 1; part = part - b end
    rest = rest - part
    while b <= rest do digit = digit + 1; rest = rest - b end
    q[i] = digit
  end
  return amount(q), rest
end

local function see() end

local function sum(a, b)
  local s = a + b
  if MOST < s then return MOST end
  return s
end

local function refilled(elapsed, rate, den, lacks)
  local q, r = divide(exactly(elapsed) * rate, den)
  if q > lacks then return nil end
  return q, r
end

local function duration(units, part, den, rate)
  if units == ZERO and part == ZERO then return 0 end
  if rate == ZERO then return NEVER end
  local q, r = divide(units * den + part, rate)
  if r > ZERO then q = q + ONE end
  q = about(q)
  if q > 9007199254740992 then return NEVER end -- 285 years
  return q
end

-- Formats are those of struct, with amounts in two halves.
local function get(format, s, at)
  local values = {struct.unpack((string.gsub(format, 'L', 'II')), s, at)}
  local t, n = {}, 0
  for token in string.gmatch((string.gsub(string.gsub(format, 'Hc0', 's'), 'x', '')), '%a%d*') do
    n = n + 1
    if token == 'L' then
      local low, high = table.remove(values, n), values[n]
      t[n] = amount({low % BASE, floor(low / BASE) + high % 65536 * 256, floor(high / 65536)})
    else
      t[n] = values[n]
    end
  end
  t[n + 1] = values[n + 1]
  return unpack(t, 1, n + 1)
end

local function put(format, ...)
  local values, n = {}, 0
  local arguments = {...}
  local i = 0
  for token in string.gmatch(format, '%a%d*') do
    i = i + 1
    if token == 'L' then
      local a = arguments[i]
      local second = a[2] or 0
      values[n + 1] = (a[1] or 0) + second % 256 * BASE
      values[n + 2] = floor(second / 256) + (a[3] or 0) * 65536
      n = n + 2
    else
      values[n + 1] = arguments[i]
      n = n + 1
    end
  end
  return struct.pack((string.gsub(format, 'L', 'II')), unpack(values, 1, n))
end
