package audit

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Columns says what the columns of a provider's export are called. Case and spaces
// around names do not matter. Date and Model must be set, and one of the others.
type Columns struct {
	// Date is the day, and Model the model's name.
	Date, Model string
	// Input and Output are tokens; several columns are added up, as some providers have
	// one for input from the cache, and one for the rest.
	Input, Output []string
	// Cost is in US dollars. Several columns are added up.
	Cost []string
	// Calls is the number of calls.
	Calls string
	// Layout is how dates are written, as [time.Parse] has it. "" reads 2006-01-02, also
	// with a time behind it, and seconds since 1970.
	Layout string
	// Comma separates columns. 0 is a comma.
	Comma rune
	// Rename names the row of a model, so that it agrees with that of [DaysConfig]. nil
	// is the name as it is, in lower case.
	Rename func(string) string
	// Zone is where days begin, for dates with a time. Defaults to UTC.
	Zone *time.Location
}

// maxField is the longest field that is read, in bytes.
const maxField = 4096

// ReadExport adds up a provider's export in CSV with a header by day and model. A field
// that is empty is 0; costs may be negative, as refunds are. The error names the line
// and the column; a row without a model or of a form that is not known is an error, as
// a report that passes over rows is worse than none.
func ReadExport(r io.Reader, c Columns) (map[Day]Sum, error) {
	rows := csv.NewReader(skipMark(r))
	if c.Comma != 0 {
		rows.Comma = c.Comma
	}
	// Where spaces or tabs separate, the one behind an empty field is no padding.
	rows.ReuseRecord, rows.TrimLeadingSpace = true, !unicode.IsSpace(rows.Comma)
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("audit: the export has no header: %w", err)
	}
	at, err := c.find(header)
	if err != nil {
		return nil, err
	}
	days := map[Day]Sum{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return days, nil
		}
		if err != nil {
			return nil, fmt.Errorf("audit: the export: %w", err)
		}
		if slices.IndexFunc(row, func(s string) bool { return strings.TrimSpace(s) != "" }) < 0 {
			continue
		}
		line, _ := rows.FieldPos(0)
		day, sum, err := c.row(row, at)
		if err != nil {
			return nil, fmt.Errorf("audit: the export, line %d: %w", line, err)
		}
		total, known := days[day]
		if !known && len(days) >= MaxDays {
			return nil, fmt.Errorf("audit: the export has more than %d pairs of a day and a model", MaxDays)
		}
		if total.Calls = sum.Calls; known && sum.Calls >= 0 {
			if total.Calls += days[day].Calls; total.Calls < 0 {
				return nil, fmt.Errorf("audit: the export, line %d: the sum of its calls does not fit into an int64", line)
			}
		}
		if err := total.add(sum); err != nil {
			return nil, fmt.Errorf("audit: the export, line %d: %w", line, err)
		}
		days[day] = total
	}
}

// places says where the columns are.
type places struct {
	date, model, calls  int // calls is below 0 without one
	input, output, cost []int
	names               []string
}

// find finds the columns in a header.
func (c *Columns) find(header []string) (p places, err error) {
	for _, name := range header {
		p.names = append(p.names, strings.TrimSpace(name))
	}
	var errs []error
	by := map[int]string{} // the fields that have named a column
	find := func(field, name string) int {
		is := func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(name)) }
		i := slices.IndexFunc(p.names, is)
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("audit: Columns.%s is not set", field))
		case i < 0:
			errs = append(errs, fmt.Errorf("audit: Columns.%s is %.80q, which the export does not have", field, name))
		case slices.ContainsFunc(p.names[i+1:], is):
			errs = append(errs, fmt.Errorf("audit: Columns.%s is %.80q, which the export has twice", field, name))
		case by[i] != "":
			errs = append(errs, fmt.Errorf("audit: Columns.%s is %.80q, and so is Columns.%s", field, name, by[i]))
		default:
			by[i] = field
		}
		return i
	}
	several := func(field string, names []string) (found []int) {
		for i, name := range names {
			found = append(found, find(fmt.Sprintf("%s[%d]", field, i), name))
		}
		return found
	}
	p.date, p.model, p.calls = find("Date", c.Date), find("Model", c.Model), -1
	p.input, p.output, p.cost = several("Input", c.Input), several("Output", c.Output), several("Cost", c.Cost)
	if c.Calls != "" {
		p.calls = find("Calls", c.Calls)
	}
	if len(c.Input)+len(c.Output)+len(c.Cost) == 0 {
		errs = append(errs, errors.New("audit: Columns has none of Input, Output and Cost"))
	}
	return p, errors.Join(errs...)
}

// row reads a row.
func (c *Columns) row(row []string, at places) (Day, Sum, error) {
	var s Sum
	wrong := func(column int, err error) error {
		return fmt.Errorf("column %q is %.80q: %w", at.names[column], row[column], err)
	}
	for i := range row {
		if len(row[i]) > maxField {
			return Day{}, s, fmt.Errorf("column %q has %d bytes, above %d", at.names[i], len(row[i]), maxField)
		}
	}
	date, err := c.date(strings.TrimSpace(row[at.date]))
	if err != nil {
		return Day{}, s, wrong(at.date, err)
	}
	model := strings.TrimSpace(row[at.model])
	if model == "" {
		return Day{}, s, wrong(at.model, errors.New("there is no model"))
	}
	if c.Rename != nil {
		model = c.Rename(model)
	} else {
		model = strings.ToLower(model)
	}
	sum := func(to *int64, columns []int, parse func(string) (int64, error)) error {
		for _, i := range columns {
			n, err := parse(strings.TrimSpace(row[i]))
			if err != nil {
				return wrong(i, err)
			}
			if n > 0 && *to+n < *to || n < 0 && *to+n > *to {
				return wrong(i, errors.New("the sum does not fit into an int64"))
			}
			*to += n
		}
		return nil
	}
	err = errors.Join(sum(&s.Input, at.input, parseCount), sum(&s.Output, at.output, parseCount), sum(&s.Nanos, at.cost, parseNanos))
	if at.calls >= 0 {
		err = errors.Join(err, sum(&s.Calls, []int{at.calls}, parseCount))
	} else {
		s.Calls = -1
	}
	return Day{date, model}, s, err
}

// date reads a date.
func (c *Columns) date(s string) (string, error) {
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	layouts := []string{time.DateOnly, time.RFC3339Nano, time.DateTime, "2006-01-02T15:04:05"}
	if c.Layout != "" {
		layouts = []string{c.Layout}
	} else if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 1e8 && n < 1e11 {
		return time.Unix(n, 0).In(zone).Format(time.DateOnly), nil
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, s, zone); err == nil {
			if layout == time.DateOnly {
				return s, nil
			}
			return at.In(zone).Format(time.DateOnly), nil
		}
	}
	return "", errors.New("it is no date that is known; see Columns.Layout")
}

// parseCount reads a number of tokens or calls, which some exports write as "1200.0".
func parseCount(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || strings.Trim(part, "0") != "" || strings.HasPrefix(s, "+") {
		return 0, errors.New("it is no whole number from 0 to 9223372036854775807")
	}
	return n, nil
}

// parseNanos reads dollars, such as "1.25", "$0.0000123", "-3" or "1.2e-05", as
// thousand-millionths, rounded half away from zero.
func parseNanos(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	errForm := errors.New("it is no amount in dollars")
	s, negative := strings.CutPrefix(s, "-")
	s = strings.TrimPrefix(s, "$")
	number, power, scientific := strings.Cut(strings.ToLower(s), "e")
	shift := 9
	if scientific {
		n, err := strconv.Atoi(power)
		if err != nil || n < -100 || n > 100 {
			return 0, errForm
		}
		shift += n
	}
	whole, part, _ := strings.Cut(number, ".")
	digits := whole + part
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errForm
	}
	// The decimal point stands behind so many digits, once it is moved.
	point := len(whole) + shift
	var n int64
	for i := range max(point, 0) {
		d := int64(0)
		if i < len(digits) {
			d = int64(digits[i] - '0')
		}
		const most = 1 << 62 / 10 // of the sum: about 4.6 thousand million dollars
		if n > most {
			return 0, errors.New("it is too large")
		}
		n = 10*n + d
	}
	if point >= 0 && point < len(digits) && digits[point] >= '5' {
		n++
	}
	if negative {
		n = -n
	}
	return n, nil
}

// skipMark passes over the byte order mark with which spreadsheets begin UTF-8.
func skipMark(r io.Reader) io.Reader {
	const mark = "\uFEFF"
	head := make([]byte, len(mark))
	n, err := io.ReadFull(r, head)
	switch {
	case string(head[:n]) == mark:
		return r
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return io.MultiReader(strings.NewReader(string(head[:n])), errReader{err})
	}
	return io.MultiReader(strings.NewReader(string(head[:n])), r)
}

// errReader is a reader that has failed.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
