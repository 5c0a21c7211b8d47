package quotaconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// parser walks a file and gathers what is wrong with it.
type parser struct {
	loader Loader
	from   *reading
	errs   []*Error
	failed map[string]bool   // the paths of values that are wrong as a whole
	quiet  map[string]bool   // the paths of what would seem wrong because of that
	less   map[string]bool   // the paths of mappings with a key that is wrong
	lines  map[string]int    // by path
	in     map[string]string // the path of what a path is in
	zone   string            // of calendar windows that name none

	plans    []string        // the paths of the plans, in order
	doubts   map[string]bool // the scopes whose declaration is wrong
	doubtful bool            // there may be any other scope
}

func newParser(loader Loader, from *reading) *parser {
	return &parser{
		loader: loader, from: from, failed: map[string]bool{}, quiet: map[string]bool{}, less: map[string]bool{},
		lines: map[string]int{}, in: map[string]string{}, doubts: map[string]bool{},
	}
}

// node is a value and where it stands. A node that is not there has no Node.
type node struct {
	*yaml.Node
	path string
}

// there reports whether the node is there.
func (n node) there() bool { return n.Node != nil }

// fail notes what is wrong with a value, so that nobody knows what was meant.
func (p *parser) fail(n node, format string, args ...any) {
	p.failed[n.path] = true
	p.tell(n, format, args...)
}

// tell notes something that is wrong with a value which is of use all the same.
func (p *parser) tell(n node, format string, args ...any) {
	line := 0
	if n.there() {
		line = n.Line
	}
	p.errs = append(p.errs, &Error{Line: max(line, 1), Path: n.path, Problem: fmt.Sprintf(format, args...)})
}

// miss notes what should be in a value and is not.
func (p *parser) miss(in node, key, why string) {
	p.in[join(in.path, key)] = in.path
	p.fail(node{in.Node, join(in.path, key)}, "is not set; %s", why)
}

// failAt notes what is wrong in a place that something else has named. It leaves
// out what follows from an error that is known already, there or around it.
func (p *parser) failAt(path, problem string) {
	if p.quiet[path] {
		return
	}
	line := 0
	for at := path; at != ""; at = p.around(at) {
		if p.failed[at] {
			return
		}
		if line == 0 {
			line = p.lines[at] // of what is not there, the line of what it should be in
		}
	}
	p.errs = append(p.errs, &Error{Line: max(line, 1), Path: path, Problem: problem})
}

// around is the path of what a value stands in. The names in a path may have dots
// in them, so it is cut only where nothing in the file is.
func (p *parser) around(path string) string {
	if in, ok := p.in[path]; ok {
		return in
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// join is the path of a key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// object are the members of a mapping, of which all keys must be known. ok is
// false if it is none; the members that are right are there all the same.
func (p *parser) object(n node, known ...string) (fields map[string]node, ok bool) {
	_, fields, ok = p.members(n, "must have keys ("+strings.Join(known, ", ")+")", known)
	return fields, ok
}

// members are the members of a mapping, and their keys in order. With known, no
// other keys may be there.
func (p *parser) members(n node, must string, known []string) (keys []string, fields map[string]node, ok bool) {
	if !n.there() || !p.plain(n) {
		return nil, nil, false
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s, but is %s", must, kind(n))
		return nil, nil, false
	}
	fields = make(map[string]node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := node{value, join(n.path, key.Value)}
		switch _, twice := fields[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			p.less[n.path] = true
			p.tell(node{key, n.path}, "a key must be a word, but is %s", kind(node{key, ""}))
		case known != nil && !slices.Contains(known, key.Value):
			p.less[n.path] = true
			p.tell(node{key, n.path}, "unknown key %s; known are %s", quoted(key.Value), strings.Join(known, ", "))
		case twice:
			p.tell(node{key, at.path}, "is given twice")
		default:
			p.lines[at.path], p.in[at.path] = key.Line, n.path
			keys, fields[key.Value] = append(keys, key.Value), at
		}
	}
	return keys, fields, true
}

// array are the elements of a sequence. A node that is not there has none.
func (p *parser) array(n node) []node {
	if !n.there() || !p.plain(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "must be a list, but is %s", kind(n))
		return nil
	}
	out := make([]node, len(n.Content))
	for i, c := range n.Content {
		out[i] = node{c, n.path + "[" + strconv.Itoa(i) + "]"}
		p.lines[out[i].path], p.in[out[i].path] = c.Line, n.path
	}
	return out
}

// scalar is a value as it is written, and the tag that YAML gives it. ok is false
// if it is none, or not there.
func (p *parser) scalar(n node) (value, tag string, ok bool) {
	switch {
	case !n.there() || !p.plain(n):
		return "", "", false
	case n.Kind != yaml.ScalarNode:
		p.fail(n, "must be one value, but is %s", kind(n))
		return "", "", false
	case n.ShortTag() == "!!null":
		p.fail(n, "is empty; leave the key out if there is no value")
		return "", "", false
	}
	return n.Value, n.ShortTag(), true
}

// text is a value that is text, and not empty. A date is text, too.
func (p *parser) text(n node) (string, bool) {
	s, tag, ok := p.scalar(n)
	switch {
	case !ok:
		return "", false
	case s == "":
		p.fail(n, "is empty; leave the key out if there is no value")
		return "", false
	case tag != "!!str" && tag != "!!timestamp":
		p.fail(n, "must be text, but is %s; put it into quotes", s)
		return "", false
	}
	return s, true
}

// texts are the texts of a list.
func (p *parser) texts(n node) (out []string) {
	for _, element := range p.array(n) {
		if s, ok := p.text(element); ok {
			out = append(out, s)
		}
	}
	return out
}

// truth is true or false.
func (p *parser) truth(n node) (value, ok bool) {
	s, tag, ok := p.scalar(n)
	if ok && (tag != "!!bool" || s != "true" && s != "false") {
		p.fail(n, "must be true or false, but is %s", quoted(s))
		return false, false
	}
	return s == "true", ok
}

var (
	wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]*(_[0-9]+)*)$`)
	negative    = regexp.MustCompile(`^-[0-9.]`)
	moment      = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2}))?$`)
	duration    = regexp.MustCompile(`^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`)
)

// number is a whole number that is not negative, with underscores or without, as
// a number or in quotes, and at most the given one.
func (p *parser) number(n node, most int64) (int64, bool) {
	s, _, ok := p.scalar(n)
	switch {
	case !ok:
		return 0, false
	case negative.MatchString(s):
		p.fail(n, "must not be negative: %s", clip(s))
		return 0, false
	case !wholeNumber.MatchString(s):
		p.fail(n, "must be a whole number, such as 60_000, but is %s", quoted(s))
		return 0, false
	}
	number, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || number > most {
		p.fail(n, "%s is more than %d, the most there is", clip(s), most)
		return 0, false
	}
	return number, true
}

// span is a time that passes.
func (p *parser) span(n node) (time.Duration, bool) {
	s, tag, ok := p.scalar(n)
	if !ok {
		return 0, false
	}
	if tag == "!!str" && duration.MatchString(s) {
		if d, err := time.ParseDuration(s); err == nil {
			return d, true
		}
	}
	if negative.MatchString(s) {
		p.fail(n, "must not be negative: %s", clip(s))
	} else {
		p.fail(n, "must be a duration, such as 2s or 500ms, but is %s", quoted(s))
	}
	return 0, false
}

// instant is a date, which begins at midnight in UTC, or a time with its zone.
func (p *parser) instant(n node) (time.Time, bool) {
	s, ok := p.text(n)
	if !ok {
		return time.Time{}, false
	}
	if moment.MatchString(s) { // package time takes more
		for _, layout := range [...]string{time.DateOnly, time.RFC3339} {
			if t, err := time.Parse(layout, s); err == nil && !t.IsZero() {
				return t, true
			}
		}
	}
	p.fail(n, "must be a date (2026-11-30) or a time with its zone (2026-11-30T08:00:00Z), but is %s", quoted(s))
	return time.Time{}, false
}

// plain refuses what could mean more than is written there. It reports whether
// what is written there can be looked at all the same.
func (p *parser) plain(n node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		p.fail(n, "anchors and aliases are not supported")
		return false
	case n.Anchor != "":
		p.tell(n, "anchors and aliases are not supported")
	case n.Style&yaml.TaggedStyle != 0:
		p.fail(n, "tags are not supported")
		return false
	}
	return true
}

// kind is what a value is, for an error.
func kind(n node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.ShortTag() == "!!null" {
		return "empty"
	}
	return quoted(n.Value)
}

// quoted is a text of the file for an error, in quotes and cut short.
func quoted(s string) string { return strconv.Quote(clip(s)) }

// clip cuts a text of the file short.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
