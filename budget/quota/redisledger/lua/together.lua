-- Several runs of a script, one after the other. They are told of each how many keys and
-- arguments it has, and then the arguments of all. Each has its own answer: where one
-- fails it is an error, and the others' are as if that one was not there. Only if the
-- server is a replica that is the answer to all, which a client looks at: it leaves then.
local clock = call('TIME')
clock = clock[1] * 1000000 + clock[2]
local function one(KEYS, ARGV)
-- ONE
end
local counts, k, a, answers = ARGV[1], 0, 1, {}
for i = 1, #counts / 2 do
  local keys, args = byte(counts, 2 * i - 1, 2 * i)
  local ok, answer = pcall(one, {unpack(KEYS, k + 1, k + keys)}, {unpack(ARGV, a + 1, a + args)})
  if not ok then -- a text, or a table with one, which begins with a code if it is the server's
    answer = tostring(type(answer) == 'table' and answer.err or answer)
    answer = {err = find(answer, '^%u+ ') and answer or 'ERR ' .. answer}
    if find(answer.err, '^READONLY ') then return answer end -- nothing was written for anybody
  end
  answers[i], k, a = answer, k + keys, a + args
end
return answers
