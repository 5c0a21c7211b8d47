package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

//go:embed README.md
var readme string

// changing is what differs each time.
var changing = regexp.MustCompile(`t=\d{2,}|Retry-After: \d+|"retryAfter":\d+|turn/[A-Z2-7]+|\d{4}-\d\d-\d\dT00:00:00Z`)

// What the README shows is what the server answers, in that order.
func TestTheReadmeIsTrue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		commands := 0
		for i, block := range strings.Split(readme, "```") {
			if i%2 == 0 || !strings.HasPrefix(block, "console\n") {
				continue
			}
			for _, shown := range strings.Split(strings.TrimPrefix(block, "console\n"), "$ ")[1:] {
				// Amounts have a dollar sign, too, but no space behind it.
				command, output, _ := strings.Cut(shown, "\n")
				commands++
				got := changing.ReplaceAllString(w.curl(command, output), "…")
				if want := changing.ReplaceAllString(output, "…"); got != want {
					t.Errorf("%s\ngot  %s\nwant %s", command, got, want)
				}
			}
		}
		if commands != 12 {
			t.Errorf("%d commands were run", commands)
		}
	})
}

// curl does what the command does with the few flags that it has here. Of the
// header fields it shows those that shown has.
func (w *world) curl(command, shown string) string {
	w.t.Helper()
	words := regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(command, -1)
	word := func(i int) string { return words[i][1] + words[i][2] }
	method, body, path, head := "GET", "", "", false
	var headers []string
	for i := 1; i < len(words); i++ {
		switch word(i) {
		case "-i":
			head = true
		case "-d":
			i++
			method, body = "POST", word(i)
		case "-H":
			i++
			name, value, _ := strings.Cut(word(i), ": ")
			if headers = append(headers, name, value); name == "Authorization" {
				headers[len(headers)-1] = strings.Replace(value, defaultAdminToken, testToken, 1)
			}
		default:
			path = strings.TrimPrefix(word(i), "http://127.0.0.1:18099")
		}
	}
	got := w.do(method, path, body, headers...)
	if !head {
		return got.body
	}
	var b strings.Builder
	fields, _, _ := strings.Cut(shown, "\n\n")
	for i, line := range strings.Split(fields, "\n") {
		name, _, _ := strings.Cut(line, ":")
		switch {
		case i == 0:
			fmt.Fprintf(&b, "HTTP/1.1 %s\n", got.text)
		case name == "Date" || name == "Content-Length":
			b.WriteString(line + "\n")
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, got.header.Get(name))
		}
	}
	return b.String() + "\n" + got.body
}
