package audit

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Tolerance says how far two counts may lie apart and still agree. The zero Tolerance
// is none.
type Tolerance struct {
	// Share is a part of the provider's number: 0.01 is one percent.
	Share float64
	// Tokens and Nanos are absolute; a difference must be above these, too, to count.
	Tokens, Nanos int64
}

// Difference is a day and a model, as we and the provider have counted it.
type Difference struct {
	Day
	// Ours and Theirs are the sums; a side that has no such row has a zero one.
	Ours, Theirs Sum
	// OnlyOurs and OnlyTheirs are true if the other side has no such row. Use that only
	// the provider knows went past the enforcer.
	OnlyOurs, OnlyTheirs bool
	// Apart is true if they differ by more than the tolerance.
	Apart bool
}

// Tokens and cost, ours − theirs.

// Input is by how many input tokens we count more.
func (d *Difference) Input() int64 { return d.Ours.Input - d.Theirs.Input }

// Output is by how many output tokens we count more.
func (d *Difference) Output() int64 { return d.Ours.Output - d.Theirs.Output }

// Nanos is by how much more cost we count, in thousand-millionths of a dollar.
func (d *Difference) Nanos() int64 { return d.Ours.Nanos - d.Theirs.Nanos }

// Report is what came of a [Reconcile].
type Report struct {
	// Differences are all rows of either side, those that agree included, by day and
	// model.
	Differences []Difference
	// Ours and Theirs are the sums of all rows.
	Ours, Theirs Sum
	// Apart is how many rows are apart.
	Apart int
	// columns that the export has
	tokens, cost bool
}

// Reconcile compares what we counted ([Days]) with what the provider did
// ([ReadExport]), by day and model. Columns that the export does not have are not
// compared; an export without any cost, or without any tokens, is taken not to have
// them. Where the cost of some of our calls is not known, costs are not compared.
func Reconcile(ours, theirs map[Day]Sum, t Tolerance) (*Report, error) {
	if !(t.Share >= 0 && t.Share < math.Inf(1)) || t.Tokens < 0 || t.Nanos < 0 {
		return nil, fmt.Errorf("audit: Tolerance is %+v, must not be negative", t)
	}
	rows := map[Day]Sum{}
	report := &Report{}
	for day, sum := range ours {
		rows[day] = Sum{}
		if err := report.Ours.all(sum); err != nil {
			return nil, err
		}
	}
	for day, sum := range theirs {
		rows[day] = Sum{}
		if err := report.Theirs.all(sum); err != nil {
			return nil, err
		}
		report.tokens = report.tokens || sum.Input != 0 || sum.Output != 0
		report.cost = report.cost || sum.Nanos != 0
	}
	for _, day := range sorted(rows) {
		d := Difference{Day: day}
		var known [2]bool
		d.Ours, known[0] = ours[day]
		d.Theirs, known[1] = theirs[day]
		d.OnlyOurs, d.OnlyTheirs = !known[1], !known[0]
		if report.tokens {
			d.Apart = t.apart(d.Ours.Input, d.Theirs.Input, t.Tokens) || t.apart(d.Ours.Output, d.Theirs.Output, t.Tokens)
		}
		if report.cost && d.Ours.Unpriced == 0 {
			d.Apart = d.Apart || t.apart(d.Ours.Nanos, d.Theirs.Nanos, t.Nanos)
		}
		if d.Apart {
			report.Apart++
		}
		report.Differences = append(report.Differences, d)
	}
	return report, nil
}

// all adds everything.
func (s *Sum) all(o Sum) error {
	s.Estimated += o.Estimated
	s.Unpriced += o.Unpriced
	if o.Calls < 0 || s.Calls < 0 {
		s.Calls = -1
	} else {
		s.Calls += o.Calls
	}
	if err := s.add(o); err != nil {
		return fmt.Errorf("audit: of all rows: %w", err)
	}
	return nil
}

// apart reports whether two numbers do not agree.
func (t *Tolerance) apart(ours, theirs, least int64) bool {
	by := math.Abs(float64(ours) - float64(theirs))
	return ours != theirs && by > float64(least) && by > t.Share*math.Abs(float64(theirs))
}

// WriteTo writes the report as a table for people: the rows that are apart, the
// largest difference of cost first, then of tokens, the sums, and of how many rows the
// costs could not be compared.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	counting := &countingWriter{w: w}
	t := tabwriter.NewWriter(counting, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "day\tmodel\tinput\tbilled\toutput\tbilled\tcost $\tbilled $\tdifference\t\t")
	apart := slices.DeleteFunc(slices.Clone(r.Differences), func(d Difference) bool { return !d.Apart })
	slices.SortStableFunc(apart, func(a, b Difference) int {
		if r.cost {
			return cmp.Compare(math.Abs(float64(b.Nanos())), math.Abs(float64(a.Nanos())))
		}
		tokens := func(d *Difference) float64 {
			return math.Abs(float64(d.Input())) + math.Abs(float64(d.Output()))
		}
		return cmp.Compare(tokens(&b), tokens(&a))
	})
	for i := range apart {
		d := &apart[i]
		why := ""
		switch {
		case d.OnlyTheirs:
			why = "not counted by us"
		case d.OnlyOurs:
			why = "not billed"
		case d.Ours.Unpriced > 0:
			why = fmt.Sprintf("%d calls without a price", d.Ours.Unpriced)
		case d.Ours.Estimated > 0:
			why = fmt.Sprintf("%d calls estimated", d.Ours.Estimated)
		}
		r.row(t, d.Date, d.Model, &d.Ours, &d.Theirs, why)
	}
	r.row(t, "all", strconv.Itoa(len(r.Differences))+" rows", &r.Ours, &r.Theirs, "")
	fmt.Fprintf(t, "%d of %d rows are apart\n", r.Apart, len(r.Differences))
	if n := r.unpriced(); r.cost && n > 0 {
		fmt.Fprintf(t, "the costs of %d rows are not compared: calls of theirs have no price\n", n)
	}
	err := t.Flush()
	return counting.n, err
}

// unpriced is how many rows have calls of which the cost is not known.
func (r *Report) unpriced() (n int) {
	for i := range r.Differences {
		if r.Differences[i].Ours.Unpriced > 0 {
			n++
		}
	}
	return n
}

func (r *Report) row(w io.Writer, date, model string, ours, theirs *Sum, why string) {
	// A cell of quoted text cannot break the table, or the terminal.
	fmt.Fprintf(w, "%s\t%s\t", date, printable(model))
	if r.tokens {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t", ours.Input, theirs.Input, ours.Output, theirs.Output)
	} else {
		fmt.Fprintf(w, "%d\t\t%d\t\t", ours.Input, ours.Output)
	}
	if r.cost {
		fmt.Fprintf(w, "%s\t%s\t%s\t", dollars(ours.Nanos), dollars(theirs.Nanos), dollars(ours.Nanos-theirs.Nanos))
	} else {
		fmt.Fprintf(w, "%s\t\t\t", dollars(ours.Nanos))
	}
	fmt.Fprintf(w, "%s\t\n", why)
}

// printable is text that fits into a cell.
func printable(s string) string {
	if len(s) > 60 {
		s = s[:60]
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

// dollars writes thousand-millionths with four decimals, cut towards zero.
func dollars(nanos int64) string {
	sign := ""
	n := uint64(nanos)
	if nanos < 0 {
		sign, n = "-", -n
	}
	return fmt.Sprintf("%s%d.%04d", sign, n/1e9, n%1e9/1e5)
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
