-- Several runs of a script, one after the other. They are told of each how many keys and
-- arguments it has, and then the arguments of all. Each has its own answer: where one
-- fails it is an error, and the others' are as if that one was not there.
local clock = call('TIME')
clock = clock[1] * 1000000 + clock[2]
local function one(KEYS, ARGV)
-- ONE
end
local counts, k, a, answers = ARGV[1], 0, 1, {}
for i = 1, #counts / 2 do
  local keys, args = byte(counts, 2 * i - 1, 2 * i)
  local ok, answer = pcall(one, {unpack(KEYS, k + 1, k + keys)}, {unpack(ARGV, a + 1, a + args)})
  if not ok and type(answer) ~= 'table' then answer = {err = 'ERR ' .. tostring(answer)} end
  answers[i], k, a = answer, k + keys, a + args
end
return answers
