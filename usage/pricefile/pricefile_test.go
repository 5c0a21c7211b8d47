package pricefile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

// asOf is the date of the fixtures, and now when calls are priced.
var (
	asOf = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	now  = asOf.AddDate(0, 0, 7)
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func catalog(t testing.TB, l usage.PriceList) *usage.Catalog {
	t.Helper()
	c, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{l}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cost is what a usage costs, as "1234" micro-dollars or as the error's words.
func cost(t testing.TB, c *usage.Catalog, model string, v usage.Variant, u usage.Usage) (usage.Micros, error) {
	t.Helper()
	p, err := c.Price(model, now, v)
	if err != nil {
		return 0, err
	}
	return p.Cost(u)
}

// names are the models of notes, each with its field.
func names(notes []pricefile.Note) (out []string) {
	for _, n := range notes {
		name := n.Model
		if n.Field != "" {
			name += " " + n.Field
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	type loader func([]byte, pricefile.Options) error
	for name, l := range map[string]struct {
		load loader
		file string
	}{
		"LiteLLM": {func(data []byte, o pricefile.Options) error {
			_, _, err := pricefile.LiteLLM(bytes.NewReader(data), o)
			return err
		}, "litellm.json"},
		"GenAIPrices": {func(data []byte, o pricefile.Options) error {
			_, _, err := pricefile.GenAIPrices(bytes.NewReader(data), o)
			return err
		}, "genai_prices.json"},
	} {
		data := fixture(t, l.file)
		if err := l.load(data, pricefile.Options{}); err == nil || !strings.Contains(err.Error(), "AsOf") {
			t.Errorf("%s without a date: %v", name, err)
		}
		if err := l.load(data, pricefile.Options{AsOf: asOf, Providers: []string{"nobody"}}); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
			t.Errorf("%s of a provider that is not there: %v", name, err)
		}
		for _, broken := range []string{"", "7", "null", `"x"`, "{", "[", "{}", "[]", string(data[:len(data)/2]), string(data) + "x"} {
			if err := l.load([]byte(broken), pricefile.Options{AsOf: asOf}); err == nil {
				t.Errorf("%s: %.20q was read", name, broken)
			}
		}
	}
}

func TestReadersThatFailOrNeverEndAreErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, _, err := pricefile.Parse(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, _, err := pricefile.LiteLLM(endless{}, pricefile.Options{AsOf: asOf}); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a reader that never ends: %v", err)
	}
}

// endless is a file of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestReportsCountReasons(t *testing.T) {
	t.Parallel()
	_, rep, err := pricefile.LiteLLM(bytes.NewReader(fixture(t, "litellm.json")), pricefile.Options{AsOf: asOf})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 models, 8 prices; 7 models skipped", "skipped: 1 × listed at 0"} {
		if !strings.Contains(rep.String(), want) {
			t.Errorf("the report lacks %q:\n%v", want, rep)
		}
	}
}
