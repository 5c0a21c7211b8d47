package adaptive

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Row is a setting that was played.
type Row struct {
	Setting Setting
	Result  Result
}

// Settings are those of the table: ten calls a second out of a bucket that is a
// minute deep, measured for two hours after half an hour, for one client and for ten
// that do not know of each other, refused calls counted and not; then how many calls
// a provider takes at a time. Each for every policy.
func Settings(seed uint64) (list []Setting) {
	for _, fails := range []bool{false, true} {
		for _, clients := range []int{1, 10} {
			for _, policy := range Policies() {
				list = append(list, Setting{
					Policy: policy, Clients: clients, Rate: 10, Window: engine.Bucket, FailuresCount: fails,
					WarmUp: 30 * time.Minute, Span: 2 * time.Hour, Seed: seed,
				})
			}
		}
	}
	for _, places := range []int{20, 100} {
		for _, policy := range []string{Headgate, Failsafe} {
			list = append(list, Setting{
				Policy: policy, Clients: 1, Places: places,
				WarmUp: 30 * time.Minute, Span: 2 * time.Hour, Seed: seed,
			})
		}
	}
	return list
}

// Rows plays the settings of the table. progress is told of each before it is played;
// nil is nobody.
func Rows(seed uint64, progress func(Setting)) (rows []Row, err error) {
	for _, s := range Settings(seed) {
		if progress != nil {
			progress(s)
		}
		res, err := Run(s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{s, res})
	}
	return rows, nil
}

// Print prints rows as a table.
func Print(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "limit\tclients\trefused calls\tpolicy\tgoodput\t429\tJain\t")
	for _, r := range rows {
		s := r.Setting
		fails := "free"
		if s.FailuresCount {
			fails = "count"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%.3f\t%.2f %%\t%.3f\t\n", s.limit(), s.Clients, fails, s.Policy,
			r.Result.Goodput, 100*r.Result.Throttled, r.Result.Jain)
	}
	return t.Flush()
}

// limit tells what the provider bounds.
func (s Setting) limit() string {
	var parts []string
	if s.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g/s %v", s.Rate, s.Window))
	}
	if s.Places > 0 {
		parts = append(parts, fmt.Sprintf("%d at a time", s.Places))
	}
	return strings.Join(parts, ", ")
}
