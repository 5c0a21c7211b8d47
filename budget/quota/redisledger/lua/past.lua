-- Past windows -----------------------------------------------------------------------

local past = {} -- what this makes
local base = sub(KEYS[1], 1, -2)
local NONE = string.rep('\255', 8) -- a limit of -1
local writes = {}                  -- account, slot, and what is written, in turns

-- Where the past windows of an account are.
local function beside(account) return base .. 'h:' .. sub(account, #base + 3) end

-- windows reads the past windows of a slot, the oldest first.
local function windows(account, slot)
  local all = {}
  local s = call('HGET', beside(account), slot) or ''
  for at = 1, #s, 48 do
    local w = {}
    w.from, w.to, w.used, w.held, w.limit, w.crossed, w.epoch = get(PERIOD, s, at)
    see(w.used, w.held)
    all[#all + 1] = w
  end
  return all
end

-- archive puts a window among the past ones. Of those in which nothing is held the
-- latest are kept; this one is among them.
local function archive(all, w)
  local i = 1
  while all[i] and all[i].from < w.from do i = i + 1 end
  table.insert(all, i, w)
  local over = -keep
  for j = 1, #all do
    if all[j].held == ZERO then over = over + 1 end
  end
  local j = 1
  while over > 0 do
    if all[j].held == ZERO and all[j] ~= w then
      table.remove(all, j)
      over = over - 1
    else
      j = j + 1
    end
  end
end

-- keeps has past windows written.
function past.keeps(account, slot, all)
  local parts = {}
  for i = 1, #all do
    local w = all[i]
    parts[i] = put(PERIOD, w.from, w.to, w.used, w.held, w.limit, w.crossed, w.epoch, 0)
  end
  local n = #writes
  writes[n + 1], writes[n + 2], writes[n + 3] = account, slot, concat(parts)
end

-- forget has nothing written that keeps was told.
function past.forget() writes = {} end

-- save writes it, to live as long as the accounts do, or longer.
function past.save()
  for i = 1, #writes, 3 do
    local name, ms = beside(writes[i]), call('PTTL', writes[i])
    call('HSET', name, writes[i + 1], writes[i + 2])
    if call('PEXPIRE', name, ms, 'GT') == 0 then call('PEXPIRE', name, ms, 'NX') end
  end
  writes = {}
end

-- window finds the window that begins at a time, where a slot has another one: among
-- the past ones, which are returned, too. If there is none it makes one; if that is later
-- than the slot's, it is for the slot, and the slot's is to be shelved when it is written.
function past.window(account, slot, text, off, from, to)
  local w = {from = from, to = to, used = ZERO, held = ZERO, limit = NONE, crossed = 0, epoch = 0}
  if not off then return w end
  if from > get('<l', text, off + 8) then return w end
  local all = windows(account, slot)
  for i = #all, 1, -1 do
    if all[i].from == from then return all[i], all end
  end
  archive(all, w)
  return w, all
end

-- shelve puts the window of a slot, in whose place another one comes, among the past ones.
function past.shelve(account, slot, text, off)
  local w = {}
  w.from, w.to, w.used, w.held, w.limit, w.crossed, w.epoch = get(PERIOD, text, off + 8)
  see(w.used, w.held)
  if w.used > ZERO or w.held > ZERO or w.crossed > 0 then
    local all = windows(account, slot)
    archive(all, w)
    past.keeps(account, slot, all)
  end
end

-- spanned is the window of three in which it is now, or else the one in the middle.
function past.spanned(a1, b1, a2, b2, a3, b3)
  if now >= a2 and now < b2 then return a2, b2 end
  if now >= a3 and now < b3 then return a3, b3 end
  if now >= a1 and now < b1 then return a1, b1 end
  return a2, b2
end

return past
