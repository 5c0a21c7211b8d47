package quotaconfig_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
	"github.com/headgate-go/headgate/usage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The genai SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// load reads a document that is right.
func load(t testing.TB, doc string) *quotaconfig.Config {
	t.Helper()
	c, err := quotaconfig.Load(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// example reads one of the example files.
func example(t testing.TB, name string) *quotaconfig.Config {
	t.Helper()
	c, err := quotaconfig.LoadFile("example/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// brief writes limits down.
func brief(limits []quota.Limit) string {
	var b strings.Builder
	for _, l := range limits {
		fmt.Fprintf(&b, "%v", l)
		if l.Burst != nil {
			fmt.Fprintf(&b, ", burst %v", l.Burst)
		}
		if l.MaxWait != nil {
			fmt.Fprintf(&b, ", wait %v", *l.MaxWait)
		}
		if l.Soft {
			fmt.Fprintf(&b, ", soft to %v", l.Ceiling)
		}
		fmt.Fprintf(&b, ", %v %v %v %v %v\n", l.Mode, l.Missing, l.Failure, l.Hold, l.Thresholds)
	}
	return b.String()
}

func TestExampleOfASupportAgent(t *testing.T) {
	t.Parallel()
	l := example(t, "support.yaml").Limits
	for plan, want := range map[string]string{
		"": "turn-rate: 20 turns, 60000 tokens per user and rolling:1m, burst map[turns:5 tokens:60000], wait 2s, observe deny open p95 []\n" +
			"turns-under-way: 2 concurrent_turns per user, observe deny open p95 []\n",
		"trial": "turn-rate: 20 turns, 60000 tokens per user and rolling:1m, burst map[turns:5 tokens:60000], wait 2s, enforce deny open p95 []\n" +
			"turns-under-way: 2 concurrent_turns per user, enforce deny open p95 []\n",
		"business": "turn-rate: 20 turns, 180000 tokens per user and rolling:1m, burst map[turns:5 tokens:180000], wait 6s, observe deny open p95 []\n" +
			"turns-under-way: 2 concurrent_turns per user, observe deny open p95 []\n",
	} {
		if got := brief(l.For(quota.Subject{User: "u", Plan: plan})); got != want {
			t.Errorf("plan %q has\n%swant\n%s", plan, got, want)
		}
	}
	if got := l.Version(); got != "2026-11-30 first numbers" {
		t.Errorf("version is %q", got)
	}
}

func TestExampleOfMonthlyCredits(t *testing.T) {
	t.Parallel()
	c := example(t, "credits.yaml")
	const rest = "team-month: 20000000 credits per team and month@tenant, enforce skip auto p95 [80 100]\n" +
		"user-day: 400000 credits per user and day@tenant, enforce deny auto p95 [80 100]\n"
	before := time.Date(2026, 12, 1, 5, 59, 59, 0, time.UTC)
	for _, q := range []struct {
		tenant string
		at     time.Time
		want   string
	}{
		{"t-1", before, "tenant-month: 50000000 credits per tenant and month@tenant, soft to map[credits:60000000], enforce deny auto p95 [80 100]\n"},
		{"t-42", before, "tenant-month: 80000000 credits per tenant and month@tenant, enforce deny auto p95 [80 100]\n"},
		{"t-42", before.Add(time.Second), "tenant-month: 50000000 credits per tenant and month@tenant, soft to map[credits:60000000], enforce deny auto p95 [80 100]\n"},
	} {
		if got := brief(c.Limits.At(quota.Subject{Tenant: q.tenant, User: "u"}, q.at)); got != q.want+rest {
			t.Errorf("%s at %v has\n%swant\n%s", q.tenant, q.at, got, q.want+rest)
		}
	}
	call := usage.Usage{Input: 3000, Output: 400}
	if got, err := c.Credits.Cost(call); got != 4600 || err != nil {
		t.Errorf("the typical call costs %d credits, %v; want 4600", got, err)
	}
}

func TestExampleOfAnAllowanceInMoney(t *testing.T) {
	t.Parallel()
	c := example(t, "allowance.yaml")
	daily := func(plan string) int64 {
		return c.Limits.For(quota.Subject{User: "alice", Plan: plan})[0].Max[quota.Money]
	}
	const spent = 800_000
	if got := usage.Micros(daily("") - spent).String(); got != "$0.20" {
		t.Errorf("after $0.80 there is %s left, want $0.20", got)
	}
	if got := usage.Micros(daily("pro") - spent).String(); got != "$9.20" {
		t.Errorf("after $0.80 and the upgrade there is %s left, want $9.20", got)
	}
	if got, want := brief(c.Limits.For(quota.Subject{Plan: "pro"})[1:]),
		"global/month: 200000000 money per global and month, enforce deny auto p95 [80 100]\n"+
			"user/minute: 20000 tokens per user and minute, enforce deny auto p95 [80 100]\n"; got != want {
		t.Errorf("besides, pro has\n%swant\n%s", got, want)
	}
	price, err := c.Catalog.Price("example-mini", time.Now(), usage.Standard)
	if err != nil || price.Input.String() != "$0.10" {
		t.Errorf("input of example-mini costs %v, %v", price.Input, err)
	}
	if _, err := c.Catalog.Price("exmaple-mini", time.Now(), usage.Standard); !errors.Is(err, usage.ErrUnknownModel) {
		t.Errorf("a misspelt model has error %v", err)
	}
}

func TestZoneOfTheFileIsForCalendarWindowsThatNameNone(t *testing.T) {
	t.Parallel()
	c := load(t, `
version: 1
zone: Europe/Berlin
limits:
  - { scope: user, window: day, max: { calls: 1 } }
  - { scope: user, window: month:15, max: { calls: 1 } }
  - { scope: user, window: day@Asia/Tokyo, max: { calls: 1 } }
  - { scope: user, window: day@UTC, max: { calls: 1 } }
  - { scope: user, window: day@tenant, max: { calls: 1 } }
  - { scope: user, window: rolling:90s, max: { calls: 1 } }
`)
	var got []string
	for _, l := range c.Limits.For(quota.Subject{}) {
		got = append(got, l.Window.ID())
	}
	want := "day@Europe/Berlin month:15@Europe/Berlin day@Asia/Tokyo day day@tenant rolling:1m30s"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("windows are %s, want %s", s, want)
	}
}

func TestDeclaredScopesAreInTheHierarchy(t *testing.T) {
	t.Parallel()
	const doc = `
version: 1
scopes: [{ scope: project, within: tenant }, { scope: region }]
limits: [{ scope: project, window: day, max: { calls: 5 } }]
overrides:
  - { scope: project, subject: { tenant: acme, project: x }, limits: [{ scope: project, window: day, max: { calls: 0 } }] }
`
	l := load(t, doc).Limits
	s := quota.Subject{Tenant: "acme", Other: map[quota.Scope]string{"project": "x"}}
	if key, ok := l.Hierarchy().Key(s, "project"); !ok || key != "tenant=acme/project=x" {
		t.Errorf("the key of a project is %q, %v", key, ok)
	}
	if got := l.For(s)[0].Max[quota.Calls]; got != 0 {
		t.Errorf("the project that has an override may make %d calls", got)
	}
	s.Tenant = "globex"
	if got := l.For(s)[0].Max[quota.Calls]; got != 5 {
		t.Errorf("a project of the same name of another tenant may make %d calls", got)
	}
	_, err := quotaconfig.Loader{Hierarchy: quota.DefaultHierarchy()}.Load(strings.NewReader(doc))
	if err == nil || !strings.Contains(err.Error(), "line 3: scopes: are set, but the program has scopes of its own") {
		t.Errorf("with scopes of the program, the error is %v", err)
	}
}

// priceFiles are price lists in all formats.
var priceFiles = fstest.MapFS{
	"own.yaml":    {Data: []byte("version: 1\nas_of: 2026-11-30\nmodels: [{ name: own, prices: [{ input: 1, output: 2 }] }]\n")},
	"broken.yaml": {Data: []byte("version: 1\nas_of: 2026-11-30\nmodels:\n  - name: own\n    prices: [{ input: 1e-9 }]\n  - prices: 5\n")},
	"lite.json": {Data: []byte(`{
		"lite": {"litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
		"other": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
	}`)},
}

func TestPriceListsOfAllKindsGoOverEachOther(t *testing.T) {
	t.Parallel()
	c, err := quotaconfig.Loader{Files: priceFiles}.Load(strings.NewReader(`
version: 1
prices:
  unknown_model: default
  default: { input: 9, output: "9.5", tiers: [{ above: 100, input: 10, output: 11 }] }
  ignore_prefixes: [router/]
  lists:
    - litellm: lite.json
      as_of: 2026-11-30
      providers: [gemini]
    - file: own.yaml
    - inline:
        version: 1
        as_of: 2026-11-30
        models: [{ name: lite, prices: [{ input: 7, output: 8 }] }]
`))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		"own": "$1.00 listed", "lite": "$7.00 listed", "router/own": "$1.00 listed", "other": "$9.00 default",
	} {
		price, err := c.Catalog.Price(model, time.Now(), usage.Standard)
		if got := fmt.Sprintf("%v %v", price.Input, price.Basis); err != nil || got != want {
			t.Errorf("%s costs %s, %v; want %s", model, got, err, want)
		}
	}
	unknown, _ := c.Catalog.Price("other", time.Now(), usage.Standard)
	if got, err := unknown.Cost(usage.Usage{Input: 1_000_000}); got != 10_000_000 || err != nil {
		t.Errorf("a long call of an unknown model costs %v, %v; want that of the tier", got, err)
	}
	if len(c.PriceLists) != 3 || len(c.PriceReports) != 3 || c.PriceReports[0].Models != 1 {
		t.Errorf("%d lists, reports %v", len(c.PriceLists), c.PriceReports)
	}
}

// Whoever makes prices or credits from a file that has none gets none, and not
// free ones.
func TestWhatIsNotInTheFileIsNil(t *testing.T) {
	t.Parallel()
	if c := load(t, "version: 1"); c.Catalog != nil || c.Credits != nil || len(c.Limits.For(quota.Subject{User: "u"})) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestJSONIsReadToo(t *testing.T) {
	t.Parallel()
	c := load(t, `{"version": 1, "limits": [{"scope": "user", "window": "day", "max": {"tokens": 60000, "money": "0.000001"}}]}`)
	if got, want := brief(c.Limits.For(quota.Subject{})), "user/day: 60000 tokens, 1 money per user and day, enforce deny auto p95 [80 100]\n"; got != want {
		t.Errorf("limits are %swant %s", got, want)
	}
}

func TestFilesThatAreNoConfigurationAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, doc, want string }{
		{"nothing", "", "line 1: the file is empty"},
		{"a comment", "# limits\n", "line 1: the file is empty"},
		{"a document of nothing", "---", "line 1: the file is empty"},
		{"no YAML", "version: [1", "yaml: "},
		{"a second document", "version: 1\n---\nversion: 1\n", "line 2: the file has more than one document"},
		{"too large", "version: 1\n#" + strings.Repeat("x", quotaconfig.MaxBytes), "has more than 4194304 bytes"},
	} {
		if _, err := quotaconfig.Load(strings.NewReader(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := quotaconfig.LoadFile("example/none.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: error is %v", err)
	}
}

func TestNoMoreThanAHundredErrorsAreTold(t *testing.T) {
	t.Parallel()
	_, err := quotaconfig.Load(strings.NewReader("version: 1\nlimits:\n" + strings.Repeat("  - { scope: user, window: dya, max: {} }\n", 150)))
	if err == nil {
		t.Fatal("there is no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || lines[100] != "quotaconfig: and 200 more errors" {
		t.Errorf("there are %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func ExampleLoad() {
	config, err := quotaconfig.Load(strings.NewReader(`
version: 1
limits:
  - { scope: user, window: day, max: { money: "1.00" } }
plans:
  pro:
    limits:
      - { scope: user, window: day, max: { money: "10.00" } }
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.Limits.For(quota.Subject{User: "alice", Plan: "pro"})[0])
	// Output: user/day: 10000000 money per user and day
}

// All mistakes are told at once, each with its line.
func ExampleLoad_mistakes() {
	_, err := quotaconfig.Load(strings.NewReader(`
version: 1
limits:
  - scope: user
    window: dayly
    max: { tokens: -1, money: 1.00 }
  - scope: team
    window: month
    max: { tokns: 60_000 }
`))
	fmt.Println(err)
	// Output:
	// quotaconfig: line 5: limits[0].window: "dayly": it is none of minute, hour, day, week, month and rolling
	// quotaconfig: line 6: limits[0].max.tokens: must not be negative: -1
	// quotaconfig: line 6: limits[0].max.money: must be in quotes, so that no reader makes a binary fraction of it: "1.00"
	// quotaconfig: line 9: limits[1].max: unknown key "tokns"; known are turns, concurrent_turns, calls, tokens, credits, money
}

// The format as the package's documentation shows it is one that is read.
func TestDocumentedFormatIsRead(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("quotaconfig.go")
	if err != nil {
		t.Fatal(err)
	}
	var doc strings.Builder
	for line := range strings.Lines(string(source)) {
		if !strings.HasPrefix(line, "//") {
			break
		}
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			doc.WriteString(text)
		}
	}
	text := strings.Replace(doc.String(), "models: [...]", "models: [{ name: m, prices: [{ input: 1 }] }]", 1)
	files := fstest.MapFS{"prices.yaml": priceFiles["own.yaml"], "model_prices_and_context_window.json": priceFiles["lite.json"]}
	c, err := quotaconfig.Loader{Files: files}.Load(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	plans, limits := c.Limits.Plans(), c.Limits.For(quota.Subject{})
	if len(plans) != 1 || len(limits) != 3 || c.Credits == nil || len(c.PriceLists) != 3 {
		t.Errorf("plans %v, limits %v, credits %v, %d price lists", plans, limits, c.Credits, len(c.PriceLists))
	}
	checker, schema := schemaOf(t)
	if problem := checker.check(schema, plainValue(t, text), ""); problem != "" {
		t.Errorf("the schema says %s", problem)
	}
}
