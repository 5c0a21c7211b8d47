package pricefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members are the members of a JSON object, in their order.
func members(data []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if token != json.Delim('{') {
		return nil, fmt.Errorf("not an object, but %T", token)
	}
	var out []member
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: token.(string)} // where More is true inside an object, a name follows
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the object")
	}
	return out, nil
}

// text is a JSON string, or "" if raw is none.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// number is the text of a JSON number. A string that holds one counts as one;
// anything else comes back as it is and is no number to anybody.
func number(raw json.RawMessage) string {
	if s := text(raw); s != "" {
		return s
	}
	return string(raw)
}

// wholeNumber is a JSON number that is an integer, however it is written. It is
// for numbers of tokens, which a float64 holds exactly.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	f, err := strconv.ParseFloat(number(raw), 64)
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// keyTwice is the first key that an object within a JSON value has more than
// once, whatever its case: package encoding/json takes the last one, and others
// the first. It is false of what is no JSON.
func keyTwice(data []byte) (string, bool) {
	type level struct {
		keys map[string]bool // nil for an array
		key  bool            // a key comes next
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []level
	for {
		token, err := d.Token()
		if err != nil {
			return "", false
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}, key: true})
			continue
		case json.Delim('['):
			open = append(open, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return "", false
		}
		in := &open[len(open)-1]
		if name, ok := token.(string); ok && in.key {
			if in.keys[strings.ToLower(name)] {
				return name, true
			}
			in.keys[strings.ToLower(name)] = true
			in.key = false
			continue
		}
		in.key = in.keys != nil // a value has ended
	}
}
