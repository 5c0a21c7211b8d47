package audit_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"pgregory.net/rapid"
)

// turn are the calls of one turn, a second apart.
func turn(d time.Duration, user, plan, id string, tokens ...int64) (all []audit.Record) {
	for i, n := range tokens {
		r := at(d+time.Duration(i)*time.Second, fmt.Sprint(id, "-", i))
		r.Turn, r.Subject, r.Outcome = id, quota.Subject{Tenant: "acme", User: user, Plan: plan}, quota.CallCharged
		r.Charged = audit.Amounts{Calls: 1, Tokens: n}
		all = append(all, r)
	}
	return all
}

func suggest(t testing.TB, cfg audit.SuggestConfig, records ...audit.Record) map[string]audit.Suggestion {
	t.Helper()
	got, err := audit.Suggest(all(records...), cfg)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]audit.Suggestion{}
	for _, s := range got {
		by[fmt.Sprintf("%s %s %v", s.Plan, s.Window.ID(), s.Unit)] = s
	}
	return by
}

// A report that is compared with last week's must not be in another order.
func TestSuggestionsAreInTheOrderOfPlansAndThenAsTheyWereAskedFor(t *testing.T) {
	t.Parallel()
	var week []audit.Record
	plans := []string{"team", "free", "pro", "", "lite", "max"}
	for i, plan := range plans {
		week = append(week, turn(time.Duration(i)*time.Hour, "alice", plan, plan, 1000)...)
	}
	suggested, err := audit.Suggest(all(week...), audit.SuggestConfig{Units: []quota.Unit{quota.Tokens, quota.Calls}, Windows: []quota.Window{quota.Day, quota.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i := range suggested {
		got = append(got, fmt.Sprintf("%s %s %v", suggested[i].Plan, suggested[i].Window.ID(), suggested[i].Unit))
	}
	slices.Sort(plans)
	for _, plan := range plans {
		for _, kind := range []string{"day tokens", "day calls", "hour tokens", "hour calls"} {
			if plan == "team" || kind[0] == 'h' { // a day is that of the plan in which it began
				want = append(want, plan+" "+kind)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the suggestions are for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A week in which a minute has 1 to 20 turns of three calls of 1,000 tokens: the 95th
// percentile is 19 turns, and 57,000 tokens.
func TestLimitsAreTwoToThreeTimesTheNinetyFifthPercentile(t *testing.T) {
	t.Parallel()
	var week []audit.Record
	for minute := range 20 {
		for i := range minute + 1 {
			d := time.Duration(minute)*time.Minute + time.Duration(i)*2*time.Second
			week = append(week, turn(d, "alice", "pro", fmt.Sprint("t", minute, "-", i), 1000, 1000, 1000)...)
		}
	}
	week = append(week, turn(time.Hour, "bob", "", "b", 500)...)
	slices.SortStableFunc(week, func(a, b audit.Record) int { return a.At.Compare(b.At) })
	got := suggest(t, audit.SuggestConfig{}, week...)
	minute := quota.Rolling(time.Minute)
	if s := got["pro "+minute.ID()+" turns"]; s.Quantile != 19 || s.Most != 20 || s.Windows != 20 || s.Low != 38 || s.High != 57 ||
		s.Checked != 210 || s.LowDenied != 0 || s.HighDenied != 0 {
		t.Errorf("turns a minute: %+v", s)
	}
	if s := got["pro "+minute.ID()+" tokens"]; s.Quantile < 57_000 || s.Quantile > 57_000*17/16 || s.Most != 60_000 || s.Checked != 630 {
		t.Errorf("tokens a minute: %+v", s)
	}
	if s := got["pro "+quota.Day.ID()+" turns"]; s.Quantile != 210 || s.Low != 420 || s.High != 630 || s.Windows != 1 {
		t.Errorf("turns a day: %+v", s)
	}
	if s := got[" "+quota.Day.ID()+" tokens"]; s.Plan != "" || s.Quantile != 500 || s.Low != 1000 {
		t.Errorf("tokens a day without a plan: %+v", s)
	}
	if len(got) != 8 {
		t.Errorf("%d suggestions, want 8", len(got))
	}
	s := got["pro "+minute.ID()+" turns"]
	if _, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{s.Limit(false)}}); err != nil || s.Limit(true).Max[quota.Turns] != 57 {
		t.Errorf("a suggestion is no limit: %v, %v", s.Limit(true), err)
	}
}

// What would have been denied, worked out by hand.
func TestWouldDenyPlaysTheRecordsAgain(t *testing.T) {
	t.Parallel()
	minute := quota.Rolling(time.Minute)
	var quiet []audit.Record // 99 minutes of one turn each, so that the percentile is 1
	for i := range 99 {
		quiet = append(quiet, turn(time.Duration(i)*time.Minute, "alice", "", fmt.Sprint("q", i), 10)...)
	}
	burst := func(n int, tokens ...int64) (all []audit.Record) {
		for i := range n {
			all = append(all, turn(100*time.Minute+time.Duration(i)*time.Millisecond, "alice", "", fmt.Sprint("b", i), tokens...)...)
		}
		slices.SortStableFunc(all, func(a, b audit.Record) int { return a.At.Compare(b.At) })
		return all
	}
	cfg := func(w quota.Window, u quota.Unit) audit.SuggestConfig {
		return audit.SuggestConfig{Windows: []quota.Window{w}, Units: []quota.Unit{u}}
	}
	for _, c := range []struct {
		name      string
		cfg       audit.SuggestConfig
		records   []audit.Record
		low, high int64
		checked   int64
	}{
		// 2 or 3 a minute, of a burst of 10 within 10 ms.
		{"turns, rolling", cfg(minute, quota.Turns), slices.Concat(quiet, burst(10, 10)), 8, 7, 109},
		// A turn is denied with its first call; its others are not checked.
		{"turns of many calls", cfg(minute, quota.Turns), slices.Concat(quiet, burst(10, 10, 10, 10)), 8, 7, 109},
		// 20 or 30 tokens a minute: turns of 8 + 8 + 8; the first calls of two or three
		// pass, and a denied call ends its turn.
		{"tokens end a turn once", cfg(minute, quota.Tokens), slices.Concat(quiet, burst(5, 8, 8, 8)), 5, 5, 99 + 15},
		// 110 turns on that day, of another user 4 on the next: limits of 220.
		{"calendar", cfg(quota.Day, quota.Turns), slices.Concat(quiet, burst(10, 10), turn(25*time.Hour, "bob", "", "n", 1)), 0, 0, 110},
	} {
		got, err := audit.Suggest(all(c.records...), c.cfg)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v, %v", c.name, got, err)
		}
		if s := got[0]; s.LowDenied != c.low || s.HighDenied != c.high || s.Checked != c.checked {
			t.Errorf("%s: %+v; want %d and %d of %d denied", c.name, s, c.low, c.high, c.checked)
		}
	}
}

// Against exact sums and sorted lists: calendar windows of users.
func TestSuggestionsAgreeWithExactSums(t *testing.T) {
	t.Parallel()
	type cell struct {
		user string
		day  int
	}
	rapid.Check(t, func(rt *rapid.T) {
		factor := rapid.SampledFrom([]float64{0.25, 0.5, 1, 2}).Draw(rt, "factor")
		quantile := rapid.SampledFrom([]float64{0.5, 0.95, 1}).Draw(rt, "quantile")
		var records []audit.Record
		sums := map[cell]int64{}
		type use struct {
			at cell
			n  int64
		}
		var uses []use
		for i := range rapid.IntRange(1, 60).Draw(rt, "calls") {
			hour := i * rapid.SampledFrom([]int{1, 3}).Draw(rt, "pace")
			user := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "user")
			n := rapid.Int64Range(1, 5000).Draw(rt, "tokens")
			r := turn(time.Duration(hour)*time.Hour, user, "", "", n)[0]
			records = append(records, r)
		}
		slices.SortStableFunc(records, func(a, b audit.Record) int { return a.At.Compare(b.At) })
		for _, r := range records {
			c := cell{r.Subject.User, r.At.YearDay()}
			sums[c] += r.Charged.Tokens
			uses = append(uses, use{c, r.Charged.Tokens})
		}
		got, err := audit.Suggest(all(records...), audit.SuggestConfig{
			Windows: []quota.Window{quota.Day}, Units: []quota.Unit{quota.Tokens}, Quantile: quantile, Low: factor, High: factor * 2,
		})
		if err != nil || len(got) != 1 {
			rt.Fatal(got, err)
		}
		s := got[0]
		var list []int64
		for _, n := range sums {
			list = append(list, n)
		}
		slices.Sort(list)
		exact := list[int(math.Ceil(quantile*float64(len(list))))-1]
		if s.Windows != int64(len(list)) || s.Most != list[len(list)-1] || s.Quantile < exact || float64(s.Quantile) > float64(exact)*17/16 {
			rt.Fatalf("%+v of %v, exactly %d", s, list, exact)
		}
		if want := factor * float64(s.Quantile); float64(s.Low) < want || float64(s.Low) > max(1.1*want+1, 1) {
			rt.Fatalf("low is %d, %v times %d", s.Low, factor, s.Quantile)
		}
		denied := func(limit int64) (n int64) {
			used := map[cell]int64{}
			for _, u := range uses {
				if used[u.at]+u.n > limit {
					n++
				} else {
					used[u.at] += u.n
				}
			}
			return n
		}
		if low, high := denied(s.Low), denied(s.High); s.LowDenied != low || s.HighDenied != high || s.Checked != int64(len(uses)) {
			rt.Fatalf("%+v, want %d and %d of %d denied", s, low, high, len(uses))
		}
	})
}

func TestSuggestBoundsItsMemory(t *testing.T) {
	t.Parallel()
	many := func(apart time.Duration) (all []audit.Record) {
		for i := range 50 {
			all = append(all, turn(time.Duration(i)*apart, fmt.Sprint("u", i), "", fmt.Sprint("t", i), 1)...)
		}
		return all
	}
	cfg := audit.SuggestConfig{MaxSubjects: 10, Windows: []quota.Window{quota.Rolling(time.Minute)}}
	if _, err := audit.Suggest(all(many(time.Second)...), cfg); err == nil || !strings.Contains(err.Error(), "SuggestConfig.MaxSubjects, 10") {
		t.Errorf("50 users within a minute: %v", err)
	}
	if _, err := audit.Suggest(all(many(2*time.Minute)...), cfg); err != nil {
		t.Errorf("50 users one after the other: %v", err)
	}
	var plans []audit.Record
	for i := range 1100 {
		plans = append(plans, turn(0, "u", fmt.Sprint("plan", i), "", 1)...)
	}
	if _, err := audit.Suggest(all(plans...), audit.SuggestConfig{}); err == nil || !strings.Contains(err.Error(), "plans") {
		t.Errorf("1,100 plans: %v", err)
	}
}

// A turn is known by its id for as long as it makes calls: one that goes on is not
// counted twice.
func TestATurnThatGoesOnIsOne(t *testing.T) {
	t.Parallel()
	var week []audit.Record
	for i := range 4000 {
		d := time.Duration(i) * 2 * time.Minute
		week = append(week, turn(d, "alice", "", fmt.Sprint("t", i), 10)...)
		if i < 2000 && i%20 == 0 { // one turn makes a call every 40 minutes
			week = append(week, turn(d+time.Second, "bob", "", "long", 10)...)
		}
	}
	cfg := audit.SuggestConfig{Windows: []quota.Window{quota.Month}, Units: []quota.Unit{quota.Turns}, Scope: quota.Tenant}
	if s := suggest(t, cfg, week...)[" "+quota.Month.ID()+" turns"]; s.Most != 4001 || s.Checked != 4001 {
		t.Errorf("4,000 short turns and a long one: %+v", s)
	}
}

func TestSuggestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  audit.SuggestConfig
		want string
	}{
		{audit.SuggestConfig{Scope: "project"}, `Scope is "project"`},
		{audit.SuggestConfig{Quantile: 1.5}, "Quantile is 1.5"},
		{audit.SuggestConfig{Quantile: math.NaN()}, "Quantile is NaN"},
		{audit.SuggestConfig{Low: -1}, "Low is -1"},
		{audit.SuggestConfig{Low: 5}, "High is 3, must be at least Low"},
		{audit.SuggestConfig{MaxSubjects: -1}, "MaxSubjects is -1"},
		{audit.SuggestConfig{Windows: []quota.Window{quota.Day, {}}}, "Windows[1]"},
		{audit.SuggestConfig{Units: []quota.Unit{quota.ConcurrentTurns}}, "Units[0] is concurrent_turns"},
	} {
		if _, err := audit.Suggest(all(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	broken := errors.New("broken")
	bad := func(yield func(audit.Record, error) bool) { yield(audit.Record{}, broken) }
	if _, err := audit.Suggest(bad, audit.SuggestConfig{}); !errors.Is(err, broken) {
		t.Errorf("an error of records is %v", err)
	}
}
