package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota/audit"
)

// Whatever is in a file: reading does not fail but for lines, and a record that was
// read is read again as the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"v":1,"kind":"call","at":"2026-11-23T12:00:00Z","subject":{"user":"alice"},"charged":{"tokens":5},"counted":[{"key":"k","amount":5}]}` + "\n"))
	f.Add([]byte("\n{}\n[]\nnull\n{\"v\":1e0,\"kind\":\"x\",\"at\":\"0001-01-01T00:00:01Z\"}\n\xff\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		whole := bytes.Count(text, []byte("\n"))
		seen := 0
		if !audit.ReadFrom(bytes.NewReader(text), "f", func(r audit.Record, err error) bool {
			if seen++; err != nil {
				var bad *audit.LineError
				if !errors.As(err, &bad) || bad.Line != seen {
					t.Fatalf("line %d: %v", seen, err)
				}
				return true
			}
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			audit.ReadFrom(bytes.NewReader(append(line, '\n')), "f", func(again audit.Record, err error) bool {
				if err != nil || !again.At.Equal(r.At) {
					t.Fatalf("%s: %v", line, err)
				}
				twice, err := json.Marshal(again)
				if err != nil || !bytes.Equal(twice, line) {
					t.Fatalf("%s\nis read as\n%s, %v", line, twice, err)
				}
				return true
			})
			return true
		}) {
			t.Fatal("reading ended")
		}
		if seen != whole {
			t.Fatalf("%d lines were told of %d", seen, whole)
		}
	})
}

// Whatever is in an export: it is read or there is an error, never a panic, and no
// number of tokens is negative.
func FuzzReadExport(f *testing.F) {
	f.Add("day,model,cached,uncached,output,cost_usd\n2026-11-23,m,1,2,3,0.5\n", "")
	f.Add("\uFEFFday;model;cached;uncached;output;cost_usd\n1795489200;m;1.0;;3;-1e-5\n", "02/01/2006")
	f.Fuzz(func(t *testing.T, text, layout string) {
		for _, comma := range []rune{0, ';'} {
			c := columns
			c.Layout, c.Comma = layout, comma
			days, err := audit.ReadExport(strings.NewReader(text), c)
			if err != nil {
				if days != nil {
					t.Fatal("there are both an error and days")
				}
				continue
			}
			for day, sum := range days {
				if _, err := time.Parse(time.DateOnly, day.Date); layout == "" && err != nil || sum.Input < 0 || sum.Output < 0 || day.Model == "" {
					t.Fatalf("%+v has %+v, %v", day, sum, err)
				}
			}
			again, err := audit.ReadExport(strings.NewReader(text), c)
			if err != nil || !reflect.DeepEqual(again, days) {
				t.Fatalf("read again it is %v, %v", again, err)
			}
		}
	})
}
