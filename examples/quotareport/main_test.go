package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// sample is an audit of two users' calls, and a line that is damaged.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sink, err := audit.Open(audit.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	span := quota.Day.Span(noon)
	for i, user := range []string{"alice", "bob", "alice"} {
		s := quota.Subject{Tenant: "acme", User: user, Plan: "pro"}
		key, _ := quota.DefaultHierarchy().Key(s, quota.User)
		sink.Listen(quota.CallSettled{
			Occasion: quota.Occasion{At: noon.Add(time.Duration(i) * time.Minute), Subject: s, Turn: user, Call: user + string(rune('0'+i))},
			Model:    "gpt-5-2025-08-07", Outcome: quota.CallCharged, Charged: quota.Amounts{quota.Tokens: 1000, quota.Money: 500},
			Usage:   usageOf1000(),
			Counted: []quota.Counted{{Limit: "daily", Scope: quota.User, Counter: quota.Counter{Key: key, Window: quota.Day.ID(), Unit: quota.Tokens}, Span: span, Amount: 1000}},
		})
	}
	sink.Listen(quota.Denied{
		Occasion: quota.Occasion{At: noon.Add(time.Hour), Subject: quota.Subject{Tenant: "acme", User: "alice"}, Call: "alice9"},
		Denial:   &quota.Denial{Reason: quota.ReasonExhausted, Limit: "daily", Scope: quota.User, Unit: quota.Tokens, Max: 2000, Used: 2000, Requested: 5, ResetsAt: span.End},
	})
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit-20261123-000002.jsonl")
	if err := os.WriteFile(path, []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReports(t *testing.T) {
	t.Parallel()
	dir := sample(t)
	bill := filepath.Join(t.TempDir(), "bill.csv")
	text := "date,model,in,cached,out,usd\n2026-11-23,GPT-5,2000,400,600,0.0015\n2026-12-24,gpt-5,1,1,1,1\n"
	if err := os.WriteFile(bill, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	columns := []string{"-export", bill, "-input", "in,cached", "-output", "out", "-cost", "usd"}
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string // in this order
	}{
		{"usage", []string{"usage", "-subject", "tenant=acme,user=alice", "-at", "2026-11-23"}, exitOK,
			[]string{"12:00:00Z", "daily", `"alice0"`, "1000", "1000", "12:02:00Z", `"alice2"`, "2000", "denied", "2000"}},
		{"usage of nobody", []string{"usage", "-subject", "user=alice"}, exitOK, []string{"there is nothing"}},
		{"reconcile", append([]string{"reconcile", "-rename", "gpt-5-2025-08-07=gpt-5"}, columns...), exitOK, []string{"0 of 1 rows are apart"}},
		{"reconcile apart", append([]string{"reconcile"}, columns...), exitFailed, []string{"gpt-5", "2 of 2 rows are apart"}},
		{"suggest", []string{"suggest", "-windows", "day", "-units", "turns,tokens"}, exitOK, []string{"pro", "user/day", "turns", "1", "2", "3", "pro", "user/day", "tokens"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			code := run(append(append(c.args[:1:1], "-dir", dir), c.args[1:]...), &out, &errs, noon.Add(48*time.Hour))
			if code != c.code {
				t.Fatalf("the exit code is %d, want %d\n%s%s", code, c.code, &out, &errs)
			}
			rest := out.String()
			for _, want := range c.want {
				at := strings.Index(rest, want)
				if at < 0 {
					t.Fatalf("there is no %q where it should be in\n%s", want, &out)
				}
				rest = rest[at+len(want):]
			}
			if !strings.Contains(errs.String(), "audit-20261123-000002.jsonl, line 1") || !strings.Contains(errs.String(), "could not be read and do not count: 1") {
				t.Errorf("the damaged line is not told:\n%s", &errs)
			}
		})
	}
}

// Noon of UTC is in the night of the next day there.
func TestADayIsOneOfTheWindowsZone(t *testing.T) {
	t.Parallel()
	day, err := quota.ParseWindow("day@Pacific/Auckland")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sink, err := audit.Open(audit.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := quota.Subject{User: "alice"}
	key, _ := quota.DefaultHierarchy().Key(s, quota.User)
	for i, at := range []time.Time{noon.Add(-time.Hour), noon} { // 00:00 and 01:00, of the 24th
		span := day.Span(at)
		sink.Listen(quota.CallSettled{
			Occasion: quota.Occasion{At: at, Subject: s, Call: "call" + string(rune('0'+i))},
			Outcome:  quota.CallCharged, Charged: quota.Amounts{quota.Tokens: 1000},
			Counted: []quota.Counted{{Limit: "daily", Scope: quota.User, Counter: quota.Counter{Key: key, Window: day.ID(), Unit: quota.Tokens}, Span: span, Amount: 1000}},
		})
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	for date, want := range map[string]int{"2026-11-23": 0, "2026-11-24": 2} {
		var out, errs strings.Builder
		args := []string{"usage", "-dir", dir, "-subject", "user=alice", "-at", date, "-window", day.ID()}
		if code := run(args, &out, &errs, noon.Add(48*time.Hour)); code != exitOK || strings.Count(out.String(), "daily") != want {
			t.Errorf("%s: the exit code is %d, and there should be %d calls:\n%s%s", date, code, want, &out, &errs)
		}
	}
}

// A bill has whole days, so the first one must not begin in its middle.
func TestAReportThatIsNotToldWhenToBeginBeginsWithADay(t *testing.T) {
	t.Parallel()
	bill := filepath.Join(t.TempDir(), "bill.csv")
	text := "date,model,input_tokens,output_tokens,cost\n2026-11-23,gpt-5-2025-08-07,2400,600,0.0015\n"
	if err := os.WriteFile(bill, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	code := run([]string{"reconcile", "-dir", sample(t), "-export", bill}, &out, &errs, noon.AddDate(0, 0, 7).Add(90*time.Second))
	if code != exitOK || !strings.Contains(out.String(), "0 of 1 rows are apart") {
		t.Errorf("the exit code is %d\n%s%s", code, &out, &errs)
	}
}

func TestACommandLineThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "usage: "},
		{"destroy", exitUsage, "usage: "},
		{"usage", exitUsage, "-dir is not set"},
		{"usage -dir x more", exitUsage, `no argument "more"`},
		{"usage -dir x -from 2026-11-23 -to 2026-11-23", exitUsage, "-to is not after -from"},
		{"usage -dir x -from yesterday", exitUsage, "from"},
		{"usage -dir x -unit euros", exitUsage, `"euros" is no unit`},
		{"usage -dir x -window fortnight", exitUsage, "fortnight"},
		{"usage -dir x -subject alice", exitUsage, `"alice" has no =`},
		{"usage -dir x -subject role=admin", exitUsage, `"role" is none`},
		{"reconcile -dir x -rename a", exitUsage, "OLD=NEW"},
		{"reconcile -dir x", exitUsage, "quotareport: -export is not set\n"},
		{"usage -dir x -subject user=a -at 2026-11-23 -from 2026-11-20", exitUsage, "quotareport: -at is given in place of -from and -to, not besides them\n"},
		{"usage -dir x -subject user=a -at 2026-11-23 -to 2026-11-30", exitUsage, "in place of -from and -to"},
		{"usage -dir x -subject user=a -at 2026-11-23 -window rolling:1h", exitUsage, "quotareport: -at has no meaning for the window rolling:1h, which has no beginning and no end; use -from and -to\n"},
		{"suggest -dir /nowhere", exitFailed, "/nowhere"},
		{"suggest -dir /nowhere -quantile 2", exitFailed, "Quantile is 2"},
		{"suggest -h", exitOK, "-windows"},
	} {
		var out, errs strings.Builder
		code := run(strings.Fields(c.args), &out, &errs, noon)
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: the exit code is %d, want %d, and it should say %q:\n%s", c.args, code, c.code, c.want, &errs)
		}
	}
}

func usageOf1000() usage.Usage { return usage.Usage{Input: 800, Output: 200} }
