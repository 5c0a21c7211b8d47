package audit_test

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
	"pgregory.net/rapid"
)

// used is a settled call.
func used(d time.Duration, model string, input, output, micros int64) audit.Record {
	r := at(d, "c")
	r.Model, r.Outcome = model, quota.CallCharged
	r.Usage = audit.Tokens{Input: input, Output: output}
	r.Charged = audit.Amounts{Calls: 1, Tokens: input + output, Money: micros}
	return r
}

var columns = audit.Columns{
	Date: "Day", Model: "model", Input: []string{"uncached", "cached"}, Output: []string{"output"}, Cost: []string{"cost_usd"},
}

func TestOurCountIsComparedWithTheBillPerDayAndModel(t *testing.T) {
	t.Parallel()
	estimated := used(2, "m-2", 40, 60, 900)
	estimated.Outcome = quota.CallEstimated
	released := used(3, "m-2", 1000, 1000, 1000)
	released.Outcome = quota.CallReleased
	tool := used(4, "m-2", 0, 0, 5000)
	tool.Tool = true
	corrected := used(5, "M-1", 100, 70, 380)
	corrected.Corrects, corrected.BeforeUsage, corrected.Before = true, audit.Tokens{Input: 100, Output: 50}, audit.Amounts{Money: 300}
	ours, err := audit.Days(all(
		used(0, "M-1", 100, 50, 300), corrected, estimated, released, tool,
		used(12*time.Hour-1, "m-1", 10, 10, 50), used(12*time.Hour, "m-1", 7, 7, 35),
		audit.Record{V: audit.Version, Kind: quota.KindDenial, At: noon, Model: "m-1"},
	), audit.DaysConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[audit.Day]audit.Sum{
		{Date: "2026-11-23", Model: "m-1"}: {Calls: 2, Input: 110, Output: 80, Nanos: 430_000},
		{Date: "2026-11-23", Model: "m-2"}: {Calls: 1, Input: 40, Output: 60, Nanos: 900_000, Estimated: 1},
		{Date: "2026-11-24", Model: "m-1"}: {Calls: 1, Input: 7, Output: 7, Nanos: 35_000},
	}
	if !reflect.DeepEqual(ours, want) {
		t.Fatalf("we counted\n%+v, want\n%+v", ours, want)
	}
	bill := "\uFEFF Day ,Model,cached,uncached,output,cost_usd,note\n" +
		"2026-11-23T00:00:00Z,m-1,100,5,80,$0.0004,\n" +
		"2026-11-23,M-1,,5,0,0.00003,\"a, b\"\n" +
		"2026-11-23,m-2,0,40,66,9.6e-4,\n" +
		",,,,,,\n" +
		"2026-11-24,m-3,1,0,0,1.5,\n"
	theirs, err := audit.ReadExport(strings.NewReader(bill), columns)
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Reconcile(ours, theirs, audit.Tolerance{Share: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range report.Differences {
		got = append(got, fmt.Sprintf("%s %s %d %d %d apart=%v ours=%v theirs=%v", d.Date, d.Model, d.Input(), d.Output(), d.Nanos(), d.Apart, d.OnlyOurs, d.OnlyTheirs))
	}
	wantRows := []string{
		"2026-11-23 m-1 0 0 0 apart=false ours=false theirs=false",
		"2026-11-23 m-2 0 -6 -60000 apart=true ours=false theirs=false",
		"2026-11-24 m-1 7 7 35000 apart=true ours=true theirs=false",
		"2026-11-24 m-3 -1 0 -1500000000 apart=true ours=false theirs=true",
	}
	if !reflect.DeepEqual(got, wantRows) {
		t.Errorf("the differences are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantRows, "\n"))
	}
	if report.Apart != 3 || report.Theirs.Nanos != 1_501_390_000 || report.Ours.Calls != 4 || report.Ours.Estimated != 1 || report.Theirs.Calls != -1 {
		t.Errorf("the report is %d apart, ours %+v, theirs %+v", report.Apart, report.Ours, report.Theirs)
	}
	var table strings.Builder
	if n, err := report.WriteTo(&table); err != nil || n != int64(table.Len()) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	lines := strings.Split(table.String(), "\n")
	for i, want := range []string{"billed", "m-3", "m-2", "m-1", "4 rows", "3 of 4 rows are apart"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want one with %q:\n%s", i+1, lines[i], want, &table)
		}
	}
	for i, why := range map[int]string{1: "not counted by us", 2: "1 calls estimated", 3: "not billed"} {
		if !strings.Contains(lines[i], why) {
			t.Errorf("line %d does not say %q: %s", i+1, why, lines[i])
		}
	}
}

func TestTheBillOfWhatWeCountedIsNeverApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var records []audit.Record
		var bill strings.Builder
		bill.WriteString("day,model,uncached,cached,output,cost_usd\n")
		for range rapid.IntRange(0, 30).Draw(rt, "calls") {
			n := rapid.SliceOfN(rapid.Int64Range(0, 1e9), 4, 4).Draw(rt, "n")
			day := rapid.IntRange(0, 3).Draw(rt, "day")
			model := rapid.SampledFrom([]string{"m-1", "m-2"}).Draw(rt, "model")
			r := used(time.Duration(day)*24*time.Hour, model, n[0]+n[1], n[2], 1+n[3])
			records = append(records, r)
			cost := usage.Micros(1 + n[3]).String()
			fmt.Fprintf(&bill, "%s,%s,%d,%d,%d,%s\n", r.At.Format(time.DateOnly), model, n[0], n[1], n[2], cost)
		}
		ours, err := audit.Days(all(records...), audit.DaysConfig{})
		if err != nil {
			rt.Fatal(err)
		}
		theirs, err := audit.ReadExport(strings.NewReader(bill.String()), columns)
		if err != nil {
			rt.Fatal(err)
		}
		report, err := audit.Reconcile(ours, theirs, audit.Tolerance{})
		if err != nil || report.Apart != 0 || report.Ours.Nanos != report.Theirs.Nanos {
			rt.Fatalf("%+v, %v", report, err)
		}
		for day := range ours { // a call that went past us
			missing := theirs[day]
			missing.Output++
			theirs[day] = missing
			if report, err := audit.Reconcile(ours, theirs, audit.Tolerance{}); err != nil || report.Apart != 1 {
				rt.Fatalf("one token more is billed: %+v, %v", report, err)
			}
			break
		}
	})
}

func TestCostsThatAreNotKnownAreNotTakenForZero(t *testing.T) {
	t.Parallel()
	catalog, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{{
		AsOf: noon.Add(-24 * time.Hour),
		Models: []usage.Model{{Name: "m-1", Prices: []usage.Price{{Rates: usage.Rates{
			Input: usage.PerMillion(1_000_000), Output: usage.PerMillion(4_000_000),
		}}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	calls := all(used(0, "m-1", 10, 5, 0), used(0, "m-9", 10, 5, 0))
	theirs := map[audit.Day]audit.Sum{
		{Date: "2026-11-23", Model: "m-1"}: {Calls: -1, Nanos: 30_000}, {Date: "2026-11-23", Model: "m-9"}: {Calls: -1, Nanos: 30_000},
	}
	for _, c := range []struct {
		name     string
		catalog  *usage.Catalog
		unpriced [2]int64
		nanos    int64
	}{{"without a catalogue", nil, [2]int64{1, 1}, 0}, {"with one", catalog, [2]int64{0, 1}, 30_000}} {
		ours, err := audit.Days(calls, audit.DaysConfig{Catalog: c.catalog})
		if err != nil {
			t.Fatal(err)
		}
		report, err := audit.Reconcile(ours, theirs, audit.Tolerance{})
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range report.Differences {
			if d.Ours.Unpriced != c.unpriced[i] || d.Apart {
				t.Errorf("%s: %+v, want %d calls without a price, and not apart", c.name, d, c.unpriced[i])
			}
		}
		if n := report.Differences[0].Ours.Nanos; n != c.nanos {
			t.Errorf("%s: 10 + 5 tokens cost %d", c.name, n)
		}
		var table strings.Builder
		if _, err := report.WriteTo(&table); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("the costs of %d rows are not compared", c.unpriced[0]+c.unpriced[1]); !strings.Contains(table.String(), want) {
			t.Errorf("%s: the report does not say that %s:\n%s", c.name, want, &table)
		}
	}
}

func TestDaysBeginWhereTheProviderSays(t *testing.T) {
	t.Parallel()
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	night := used(15*time.Hour, "m", 1, 0, 1) // 03:00 UTC on the 24th
	ours, err := audit.Days(all(night), audit.DaysConfig{Zone: pacific, Model: func(string) string { return "x" }})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := ours[audit.Day{Date: "2026-11-23", Model: "x"}]; !ok {
		t.Errorf("a call at 19:00 in California is of %v", ours)
	}
	for date, want := range map[string]string{
		"2026-11-24T03:00:00Z": "2026-11-23", "2026-11-24 03:00:00": "2026-11-24", "1795489200": "2026-11-23", "2026-11-24": "2026-11-24",
	} {
		c := columns
		c.Zone = pacific
		theirs, err := audit.ReadExport(strings.NewReader("day,model,cached,uncached,output,cost_usd\n"+date+",m,1,0,0,0\n"), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := theirs[audit.Day{Date: want, Model: "m"}]; !ok {
			t.Errorf("%s is of %v, want %s", date, theirs, want)
		}
	}
}

func TestAnEmptyFieldIsZeroWhateverSeparates(t *testing.T) {
	t.Parallel()
	want := map[audit.Day]audit.Sum{{Date: "2026-11-23", Model: "m"}: {Calls: -1, Output: 5}}
	for _, comma := range []rune{',', ';', '\t', '|'} {
		text := strings.ReplaceAll("day|model|in|out|usd\n2026-11-23|m||5|\n", "|", string(comma))
		got, err := audit.ReadExport(strings.NewReader(text), audit.Columns{
			Date: "day", Model: "model", Input: []string{"in"}, Output: []string{"out"}, Cost: []string{"usd"}, Comma: comma,
		})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v: %v", comma, got, want, err)
		}
	}
}

func TestAnExportThatCannotBeReadSaysWhere(t *testing.T) {
	t.Parallel()
	const header = "day,model,cached,uncached,output,cost_usd\n"
	for _, c := range []struct {
		text    string
		columns audit.Columns
		want    string
	}{
		{"", columns, "the export has no header"},
		{"day,model\n", columns, `Columns.Input[0] is "uncached", which the export does not have`},
		{"day,model,Cost,cost\n", audit.Columns{Date: "day", Model: "model", Cost: []string{"cost"}}, `Columns.Cost[0] is "cost", which the export has twice`},
		{header, audit.Columns{Date: "day", Model: "model", Input: []string{"cached", "Cached"}}, `Columns.Input[1] is "Cached", and so is Columns.Input[0]`},
		{header, audit.Columns{}, "Columns.Date is not set"},
		{header, audit.Columns{Date: "day", Model: "model"}, "Columns has none of Input, Output and Cost"},
		{header + "2026-11-23,m,1,1,1,1\n2026-13-01,m,1,1,1,1\n", columns, `line 3: column "day" is "2026-13-01"`},
		{header + "2026-11-23,,1,1,1,1\n", columns, `line 2: column "model" is "": there is no model`},
		{header + "2026-11-23,m,-1,1,1,1\n", columns, `column "cached" is "-1"`},
		{header + "2026-11-23,m,1,1.5,1,1\n", columns, `column "uncached" is "1.5"`},
		{header + "2026-11-23,m,1,1,1,1 EUR\n", columns, `column "cost_usd" is "1 EUR"`},
		{header + "2026-11-23,m,1,1,1\n", columns, "line 2: wrong number of fields"},
		{header + "2026-11-23,m,9223372036854775807,1,1,0\n", columns, `column "cached" is "9223372036854775807": the sum does not fit`},
		{header + "2026-11-23,m,9223372036854775807,0,1,0\n2026-11-23,m,1,0,1,0\n", columns, "line 3: the sum of its input tokens does not fit"},
		{header + "2026-11-23,m,0,0,0,99999999999\n", columns, "it is too large"},
		{header + "2026-11-23," + strings.Repeat("m", 5000) + ",0,0,0,0\n", columns, "has 5000 bytes, above 4096"},
	} {
		if _, err := audit.ReadExport(strings.NewReader(c.text), c.columns); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: got error %v, want %s", c.text, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := audit.ReadExport(failing{broken}, columns); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, err := audit.Reconcile(nil, nil, audit.Tolerance{Share: -1}); err == nil || !strings.Contains(err.Error(), "Tolerance") {
		t.Errorf("a negative tolerance: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Costs against exact fractions: each is rounded to the nearest thousand-millionth,
// half away from zero.
func TestCostsAreReadExactly(t *testing.T) {
	t.Parallel()
	read := func(cost string) (int64, error) {
		days, err := audit.ReadExport(strings.NewReader("day,model,cached,uncached,output,cost_usd\n2026-11-23,m,0,0,0,"+cost+"\n"), columns)
		return days[audit.Day{Date: "2026-11-23", Model: "m"}].Nanos, err
	}
	for _, bad := range []string{"e5", "1e", "1e999", "--1", "1.2.3", "1,5", "0x10", "NaN", "Inf", "1_000", "٣"} {
		if n, err := read(`"` + bad + `"`); err == nil {
			t.Errorf("%s was read as %d", bad, n)
		}
	}
	for cost, want := range map[string]int64{"0.0000000005": 1, "-0.0000000005": -1, "0.00000000049": 0, "5e-10": 1, "12.5e-10": 1} {
		if n, err := read(cost); n != want || err != nil {
			t.Errorf("%s was read as %d, want %d: %v", cost, n, want, err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		cost := rapid.StringMatching(`-?\$?[0-9]{1,6}(\.[0-9]{0,14})?([eE][-+]?[0-2]?[0-9])?`).Draw(rt, "cost")
		exact, ok := new(big.Rat).SetString(strings.ReplaceAll(cost, "$", ""))
		if !ok {
			rt.Fatalf("%q is no number", cost)
		}
		exact.Mul(exact, big.NewRat(1e9, 1))
		half := big.NewRat(int64(exact.Sign()), 2)
		exact.Add(exact, half)
		want := new(big.Int).Quo(exact.Num(), exact.Denom())
		n, err := read(cost)
		if err != nil {
			if limit := big.NewInt(4e18); want.CmpAbs(limit) < 0 {
				rt.Fatalf("%s, which is %v: %v", cost, want, err)
			}
			return
		}
		if want.Cmp(big.NewInt(n)) != 0 {
			rt.Fatalf("%s was read as %d, want %v", cost, n, want)
		}
	})
}
