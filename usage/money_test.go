package usage_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"pgregory.net/rapid"
)

func TestMoneyAddsUpExactly(t *testing.T) {
	t.Parallel()
	t.Run("ten charges of 0.10 fill a cap of 1.00, and an eleventh does not fit", func(t *testing.T) {
		t.Parallel()
		limit, charge := micros(t, "1.00"), micros(t, "0.10")
		var spent usage.Micros
		admitted := 0
		for spent < limit {
			sum, err := spent.Add(charge)
			if err != nil {
				t.Fatal(err)
			}
			spent = sum
			admitted++
		}
		if admitted != 10 || spent != limit {
			t.Errorf("%d charges came to %v, want 10 and %v", admitted, spent, limit)
		}
	})
	t.Run("a million charges of a micro-dollar are a dollar", func(t *testing.T) {
		t.Parallel()
		var spent usage.Micros
		for range 1_000_000 {
			sum, err := spent.Add(1)
			if err != nil {
				t.Fatal(err)
			}
			spent = sum
		}
		if got := spent.String(); got != "$1.00" {
			t.Errorf("they came to %s", got)
		}
	})
	t.Run("a sum that does not fit is an error", func(t *testing.T) {
		t.Parallel()
		for _, c := range [][2]usage.Micros{{math.MaxInt64, 1}, {1, math.MaxInt64}, {math.MinInt64, -1}, {-1, math.MinInt64}} {
			if sum, err := c[0].Add(c[1]); !errors.Is(err, usage.ErrOverflow) {
				t.Errorf("%d + %d = %d, %v", c[0], c[1], sum, err)
			}
		}
		for _, c := range [][2]usage.Micros{{math.MaxInt64, 0}, {math.MaxInt64, math.MinInt64}, {math.MinInt64, 0}} {
			if sum, err := c[0].Add(c[1]); err != nil || sum != c[0]+c[1] {
				t.Errorf("%d + %d = %d, %v", c[0], c[1], sum, err)
			}
		}
	})
}

func TestDecimalTextIsReadExactlyOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		want  usage.Micros
		wrong string // part of the error
	}{
		{"0", 0, ""},
		{"-0.0", 0, ""},
		{"2", 2_000_000, ""},
		{"2.50", 2_500_000, ""},
		{"0.075", 75_000, ""},
		{"0.000001", 1, ""},
		{"1e-6", 1, ""},
		{"1.0000000000000000000e0", 1_000_000, ""},
		{"123E+2", 12_300_000_000, ""},
		{"9223372036854.775807", math.MaxInt64, ""},
		{"000000000000000000000000000001", 1_000_000, ""},

		{"9223372036854.775808", 0, "does not fit"},
		{"1e300", 0, "does not fit"},
		{"1e99999999999999999999", 0, "does not fit"},
		{"0.0000001", 0, "per million?"},
		{"1.25e-06", 0, "per million?"},
		{"0.0000029999900000000002", 0, "per million?"},
		{"1e-99999999999999999999", 0, "per million?"},
		{"-1", 0, "negative"},
		{"-1e-30", 0, "negative"},
		{"", 0, "not a decimal"},
		{"-", 0, "not a decimal"},
		{"--0", 0, "not a decimal"},
		{"+1", 0, "not a decimal"},
		{".5", 0, "not a decimal"},
		{"5.", 0, "not a decimal"},
		{"1e", 0, "not a decimal"},
		{"1e5.5", 0, "not a decimal"},
		{"1_000", 0, "not a decimal"},
		{"1,5", 0, "not a decimal"},
		{"0x10", 0, "not a decimal"},
		{"NaN", 0, "not a decimal"},
		{".inf", 0, "not a decimal"},
		{"Infinity", 0, "not a decimal"},
		{" 1", 0, "not a decimal"},
		{"٣", 0, "not a decimal"},
	} {
		r, err := usage.ParseRate(c.text)
		got, set := r.Micros()
		switch {
		case c.wrong == "" && (err != nil || got != c.want || !set):
			t.Errorf("ParseRate(%q) = %d, %v, want %d", c.text, got, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || set):
			t.Errorf("ParseRate(%q) = %v, %v, want an error with %q", c.text, r, err, c.wrong)
		}
	}
}

func TestAmountsAreNotPrices(t *testing.T) {
	t.Parallel()
	if _, err := usage.ParseMicros("0.0000001"); err == nil || strings.Contains(err.Error(), "per million") {
		t.Errorf("an amount with seven decimals: %v", err)
	}
	long := strings.Repeat("9", 10_000)
	if _, err := usage.ParseMicros(long); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long text makes a long error: %.80v", err)
	}
}

func TestPricesPerTokenAreReadAsPerMillion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]usage.Micros{
		"2e-06": 2_000_000, "2.5e-07": 250_000, "5.46875e-07": 546_875, "0.000002": 2_000_000, "1e-12": 1, "0.0": 0,
	} {
		if r, err := usage.ParseRatePerToken(text); err != nil || r != usage.PerMillion(want) {
			t.Errorf("%q is %v, %v, want %v", text, r, err, want)
		}
	}
	// What binary arithmetic leaves behind is not a price.
	if r, err := usage.ParseRatePerToken("3.0001999999999996e-07"); err == nil || !strings.Contains(err.Error(), "per million?") {
		t.Errorf("a price with sixteen digits is %v, %v", r, err)
	}
}

func TestAmountsAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for m, want := range map[usage.Micros]string{
		0: "$0.00", 1: "$0.000001", 5660: "$0.00566", 1_250_000: "$1.25", -500_000: "-$0.50",
		math.MaxInt64: "$9223372036854.775807", math.MinInt64: "-$9223372036854.775808",
	} {
		if got := m.String(); got != want {
			t.Errorf("%d is written %s, want %s", int64(m), got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := usage.Micros(rapid.Int64Min(0).Draw(t, "amount"))
		if got, err := usage.ParseMicros(m.String()[1:]); err != nil || got != m {
			t.Fatalf("%v is read as %v, %v", m, got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"2.50", "1e-6", "-0", "9223372036854.775807", "1e400", "00.10", "5e", ".1", "1.25e-06"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := usage.ParseRate(s)
		got, set := r.Micros()
		if set != (err == nil) {
			t.Fatalf("%q: %v and %v", s, r, err)
		}
		if err != nil || len(s) > 64 {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		if !ok || want.Mul(want, big.NewRat(1_000_000, 1)).Cmp(new(big.Rat).SetInt64(int64(got))) != 0 {
			t.Fatalf("%q is read as %d", s, got)
		}
	})
}

func micros(t *testing.T, s string) usage.Micros {
	t.Helper()
	m, err := usage.ParseMicros(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
