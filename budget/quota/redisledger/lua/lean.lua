-- What a fast way has of fast.lua, which comes after it.
local put, get = struct.pack, struct.unpack
local floor, ceil = math.floor, math.ceil
local ZERO, ONE = 0, 1
