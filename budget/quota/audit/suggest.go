package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [SuggestConfig].
const (
	// DefaultQuantile is the part of all windows that a suggestion starts from.
	DefaultQuantile = 0.95
	// DefaultLow and DefaultHigh are what it is multiplied by.
	DefaultLow, DefaultHigh = 2, 3
)

// SuggestConfig says what [Suggest] looks at. The zero value looks at users, and at
// turns and tokens a minute and a day.
type SuggestConfig struct {
	// Hierarchy are the scopes; nil is [quota.DefaultHierarchy].
	Hierarchy *quota.Hierarchy
	// Scope is whose use is counted together. Defaults to [quota.User].
	Scope quota.Scope
	// Windows are those of the limits to be suggested. Defaults to a rolling minute and
	// [quota.Day]. Windows in the tenant's zone are looked at in UTC.
	Windows []quota.Window
	// Units are those of the limits. Defaults to turns and tokens; [quota.ConcurrentTurns]
	// cannot be told from an audit.
	Units []quota.Unit
	// Quantile is a part of all windows in which anything was used. Defaults to
	// [DefaultQuantile].
	Quantile float64
	// Low and High multiply it: a limit at the low end, and one at the high end.
	// Default to [DefaultLow] and [DefaultHigh].
	Low, High float64
	// MaxSubjects is how many subjects may use something within one window; more is an
	// error. Defaults to a million.
	MaxSubjects int
}

func (c *SuggestConfig) withDefaults() error {
	c.Scope = cmp.Or(c.Scope, quota.User)
	c.Quantile, c.Low, c.High = cmp.Or(c.Quantile, DefaultQuantile), cmp.Or(c.Low, DefaultLow), cmp.Or(c.High, DefaultHigh)
	c.MaxSubjects = cmp.Or(c.MaxSubjects, 1<<20)
	if c.Windows == nil {
		c.Windows = []quota.Window{quota.Rolling(time.Minute), quota.Day}
	}
	if c.Units == nil {
		c.Units = []quota.Unit{quota.Turns, quota.Tokens}
	}
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("audit: SuggestConfig."+format, args...))
	}
	if !c.Hierarchy.Has(c.Scope) {
		fail("Scope is %.40q, which the hierarchy does not have", string(c.Scope))
	}
	if !(c.Quantile > 0 && c.Quantile <= 1) {
		fail("Quantile is %v, must be above 0 and at most 1", c.Quantile)
	}
	if !(c.Low > 0 && c.Low <= 1e6) {
		fail("Low is %v, must be above 0 and at most a million", c.Low)
	}
	if !(c.High >= c.Low && c.High <= 1e6) {
		fail("High is %v, must be at least Low and at most a million", c.High)
	}
	if c.MaxSubjects < 0 {
		fail("MaxSubjects is %d, must not be negative", c.MaxSubjects)
	}
	for i, w := range c.Windows {
		if err := w.Validate(); err != nil {
			fail("Windows[%d]: %w", i, err)
		}
	}
	for i, u := range c.Units {
		if int(u) >= quota.Units || u == quota.ConcurrentTurns {
			fail("Units[%d] is %v, which cannot be told from an audit", i, u)
		}
	}
	return errors.Join(errs...)
}

// Suggestion is a limit that would fit what was used, for the subjects of a plan.
type Suggestion struct {
	// Plan is the plan; "" for subjects without one.
	Plan   string
	Scope  quota.Scope
	Window quota.Window
	Unit   quota.Unit
	// Windows is how many windows of subjects there were in which anything was used.
	Windows int64
	// Quantile is what was used in the part of them that was asked for, at most, and
	// Most in any. Quantile may be too high by 1/16.
	Quantile, Most int64
	// Low and High are the suggested limits: Quantile times the factors, rounded up to
	// two digits, and at least 1.
	Low, High int64
	// Checked is how many turns, or calls for other units than turns, were made; LowDenied
	// and HighDenied how many of them would have been denied by that limit.
	Checked, LowDenied, HighDenied int64
}

// Limit is the suggested limit, the one at the high end if high is true. It observes:
// have it enforced when what it would deny is what it should.
func (s *Suggestion) Limit(high bool) quota.Limit {
	n := s.Low
	if high {
		n = s.High
	}
	return quota.Limit{Scope: s.Scope, Window: s.Window, Max: quota.Max{s.Unit: n}, Mode: quota.Observe}
}

// Suggest derives limits from what was used, such as in the last week: for each plan,
// window and unit the 95th percentile of what one subject used in one window, times two
// and three. It says what these limits would have denied.
//
// Records are ranged twice, as those of [Read] can be. Only windows in which a subject
// used anything count. A turn is one that made a call; one that was denied is none, so
// what is limited already is only suggested as far as it was let through. Use counts
// when it was settled; a rolling window is looked at from one full minute (or whatever
// it has) to the next.
//
// For what would have been denied the records are played again: a limit of turns denies
// a turn with its first call, and any other the rest of the turn. A rolling limit has a
// burst of one window's use and nobody waits for it, so those who wait a little are
// counted as denied, too. Each limit is looked at by itself.
//
// The error is the first one of records, or names a field.
func Suggest(records iter.Seq2[Record, error], cfg SuggestConfig) ([]Suggestion, error) {
	if err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	found := gathering{cfg: &cfg, kinds: map[kindOf]*histogram{}}
	if err := found.gather(records); err != nil {
		return nil, err
	}
	all := found.suggestions()
	for i := range all {
		all[i].Low = round(float64(all[i].Quantile) * cfg.Low)
		all[i].High = round(float64(all[i].Quantile) * cfg.High)
	}
	return all, replay(records, all, &cfg)
}

// round rounds up to two digits; it is at least 1 and fits into a limit.
func round(f float64) int64 {
	n := int64(math.Ceil(min(max(f, 1), quota.MaxAmount)))
	step := int64(1)
	for n/step >= 100 {
		step *= 10
	}
	return min((n+step-1)/step*step, quota.MaxAmount)
}

// amount is what a call's record adds in a unit. Of turns it is 1 with the first call.
func (r *Record) amount(u quota.Unit, first bool) int64 {
	switch {
	case u == quota.Turns && first:
		return 1
	case u == quota.Turns:
		return 0
	case r.Corrects:
		return r.Charged.of(u.String()) - r.Before.of(u.String())
	}
	return r.Charged.of(u.String())
}

// cellEnd is the end of the window of a limit in which an instant lies.
func cellEnd(w quota.Window, at time.Time) time.Time {
	if w.IsRolling() {
		return at.Truncate(w.Per()).Add(w.Per())
	}
	if w.IsTenantZone() {
		w = w.Resolve(nil)
	}
	return w.Span(at).End
}

// Write writes suggestions as a table for people.
func Write(w io.Writer, all []Suggestion) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "plan\tlimit\tunit\twindows\tquantile\tmost\tlow\twould deny\thigh\twould deny\t")
	for i := range all {
		s := &all[i]
		fmt.Fprintf(t, "%s\t%s/%s\t%v\t%d\t%d\t%d\t%d\t%s\t%d\t%s\t\n",
			cmp.Or(printable(s.Plan), "-"), s.Scope, s.Window.ID(), s.Unit, s.Windows, s.Quantile, s.Most,
			s.Low, share(s.LowDenied, s.Checked), s.High, share(s.HighDenied, s.Checked))
	}
	return t.Flush()
}

// share writes a number of a whole, and the percentage.
func share(n, of int64) string {
	if of == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s%%)", n, strconv.FormatFloat(100*float64(n)/float64(of), 'f', 2, 64))
}

// sortSuggestions sorts by plan, and then as the configuration has them.
func sortSuggestions(all []Suggestion) {
	slices.SortStableFunc(all, func(a, b Suggestion) int { return cmp.Compare(a.Plan, b.Plan) })
}
