package redisledger

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
	"strings"
)

// The parts of scripts. See lua/store.lua for how a tree is kept.
var (
	//go:embed lua/fast.lua
	fastLua string
	//go:embed lua/exact.lua
	exactLua string
	//go:embed lua/lean.lua
	leanLua string
	//go:embed lua/store.lua
	storeLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/past.lua
	pastLua string
	//go:embed lua/conclude.lua
	concludeLua string
	//go:embed lua/ends.lua
	endsLua string
	//go:embed lua/together.lua
	togetherLua string
	//go:embed lua/sweep.lua
	sweepLua string
	//go:embed lua/plain.lua
	plainLua string
	//go:embed lua/repeat.lua
	repeatLua string
	//go:embed lua/more.lua
	moreLua string
	//go:embed lua/reserve.lua
	reserveLua string
	//go:embed lua/reserve_fast.lua
	reserveFastLua string
	//go:embed lua/settle_fast.lua
	settleFastLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/status.lua
	statusLua string
	//go:embed lua/history.lua
	historyLua string
	//go:embed lua/erase.lua
	eraseLua string
)

// source is a script, and the name by which the server knows it.
type source struct {
	text, sha string
	together  *source // has several runs of it at a time, if there is such a script
}

func newSource(parts ...string) source {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) // as the server names it
	return source{text: text, sha: hex.EncodeToString(sum[:])}
}

// A script is one operation of the ledger, in up to three ways.
type script struct {
	name string
	// lean is fast where nothing rare is to be done. Where that is, it answers 'X', and
	// has done nothing; where there is no such script, it is full.
	lean source
	// full can do everything with plain numbers.
	full source
	// exact is its twin for large amounts.
	exact source
}

// The ways of a script.
const (
	lean = iota
	full
	exact
)

func (s *script) way(way int) *source {
	switch way {
	case lean:
		return &s.lean
	case full:
		return &s.full
	}
	return &s.exact
}

// newScript makes a script of what it needs only rarely, and of what it does always.
func newScript(name, rarely, always string) *script {
	s := &script{
		name:  name,
		full:  newSource(fastLua, storeLua, bucketLua, rarely, always),
		exact: newSource(exactLua, storeLua, bucketLua, rarely, always),
	}
	s.lean = s.full
	return s
}

// newFastScript makes a script that has a fast way for what happens nearly always. It
// stands at a mark, and only what stands before the mark goes before it.
func newFastScript(name, rarely, always, fast string) *script {
	s := newScript(name, rarely, always)
	before, after, _ := strings.Cut(always, "-- FAST\n")
	after = rare.ReplaceAllString(after, "do return 'X' end")
	s.lean = newSource(leanLua, storeLua, before, fast, fastLua, bucketLua, after)
	one := strings.Join([]string{strings.Replace(before, clockLua, "now = clock + offset\n", 1), fast, fastLua, bucketLua, after}, "\n")
	together := newSource(leanLua, storeLua, strings.Replace(togetherLua, "-- ONE", one, 1))
	s.lean.together = &together
	return s
}

// clockLua is how a script reads the clock, which is read once for several that run
// together.
const clockLua = "now = call('TIME')\nnow = now[1] * 1000000 + now[2] + offset\n"

// rare are statements which say that something rare is to be done.
var rare = regexp.MustCompile(`(?m)^.* -- RARE$`)

// Functions that make functions, for what is rare.
var (
	unfold   = "local function unfold()\n" + pastLua + "end\n"
	sweeping = unfold + "local function sweeping(past)\n" + endsLua +
		"local function conclude(name, s, state, actual, low, high, targets, old)\n" + concludeLua + "return s\nend\n" +
		sweepLua + "end\n"
	unfoldPlain  = "local function unfoldplain()\n" + plainLua + "end\n"
	unfoldRepeat = "local function unfoldrepeat()\n" + repeatLua + "end\n"
	unfoldMore   = "local function unfoldmore(past)\n" + moreLua + "end\n"
)

var (
	reserveScript = newFastScript("reserve", sweeping+unfoldRepeat, reserveLua, reserveFastLua)
	settleScript  = newFastScript("settle", sweeping+unfoldMore+unfoldRepeat, endsLua+strings.NewReplacer("-- CONCLUDE\n", concludeLua, "-- PLAIN\n", unfoldPlain).Replace(settleLua), settleFastLua)
	releaseScript = newScript("release", sweeping, releaseLua)
	renewScript   = newScript("renew", sweeping, renewLua)
	statusScript  = newScript("status", sweeping, statusLua)
	historyScript = newScript("history", sweeping, historyLua)
	eraseScript   = newScript("erase", sweeping, eraseLua)

	scripts = []*script{reserveScript, settleScript, releaseScript, renewScript, statusScript, historyScript, eraseScript}
)
