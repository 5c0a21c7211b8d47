package observability

import (
	"context"
	"iter"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// A matcher with a value that no series has matches nothing, silently and for good. So
// each value must be one that a gate has counted here, or a constant of package quota.
func TestMatchersNameValuesThatThereAre(t *testing.T) {
	t.Parallel()
	known := counted(t)
	maps.Copy(known, failures(t))
	of := func(metric, label string, values ...string) {
		known[metric+" "+label] = append(known[metric+" "+label], values...)
	}
	of("headgate_quota_decisions_total", "stage", quota.Admission.String(), quota.MidTurn.String())
	of("headgate_quota_decisions_total", "outcome", string(quota.OutcomeDenied), string(quota.OutcomeObserved), string(quota.OutcomeUnidentified))
	of("headgate_quota_decisions_total", "scope", string(quota.Team), string(quota.Tenant), string(quota.Global))
	of("headgate_quota_denials_total", "reason", string(quota.ReasonTurnCalls), string(quota.ReasonTurnCost), string(quota.ReasonUnpriced))
	of("headgate_quota_denials_total", "mode", quota.Enforce.String())
	of("headgate_quota_thresholds_total", "scope", string(quota.Team), string(quota.Tenant), string(quota.Global))
	of("headgate_quota_thresholds_total", "percent", "100") // a default
	of("headgate_quota_events_total", "result", "dropped")  // TestPrometheusScrapesTheExampleAndAlerts has it

	checked := 0
	matched := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		for _, m := range metricName.FindAllStringSubmatch(q.expr, -1) {
			for _, l := range matched.FindAllStringSubmatch(m[2], -1) {
				if l[2] == ".*" {
					continue
				}
				for value := range strings.SplitSeq(l[2], "|") {
					checked++
					if !slices.Contains(known[m[1]+" "+l[1]], value) {
						t.Errorf("%s: no series of %s has %s=%q", q.where, m[1], l[1], value)
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d values were checked", checked)
	}
}

// failing is a model whose request is the error that it answers with.
type failing struct{}

func (failing) Name() string { return "m" }

func (failing) GenerateContent(_ context.Context, err error, _ bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", err) }
}

// oneToken measures every call as one token.
type oneToken struct{}

func (oneToken) Estimate(error) usage.Usage                             { return usage.Usage{Input: 1, Flags: usage.Estimated} }
func (oneToken) Observe(string) (u usage.Usage, p ratelimited.Progress) { return u, p }
func (oneToken) Clamp(err error, _ int64) (error, bool)                 { return err, false }

// counted are the values that the labels of a gate's metrics have, by metric and
// label, after all has gone wrong that the alerts are about.
func counted(t *testing.T) map[string][]string {
	var values map[string][]string
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		gate, err := ratelimited.NewGate(ratelimited.Config{
			Slots: 1, MaxWaiting: 1, MaxWait: new(time.Minute), Registerer: reg,
			Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000}),
			Retry:   retry.Policy{Base: 1000 * time.Hour, Cap: 1000 * time.Hour}, // no second attempt
		})
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(ctx context.Context, input int64) {
			if permit, err := gate.Acquire(ctx, ratelimited.Call{Usage: usage.Usage{Input: input}}); err == nil {
				permit.Release()
				t.Errorf("a call with %d tokens is admitted", input)
			}
		}
		refuse(t.Context(), 2000) // never fits
		permit, err := gate.Acquire(t.Context(), ratelimited.Call{})
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refuse(short, 1) // deadline
		waits := make(chan struct{})
		go func() {
			defer close(waits)
			refuse(t.Context(), 1) // longest wait
		}()
		synctest.Wait()
		refuse(t.Context(), 1) // full line
		<-waits
		permit.Release()

		model, err := ratelimited.NewMetered(failing{}, gate, oneToken{})
		if err != nil {
			t.Fatal(err)
		}
		for _, failure := range []error{
			&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}},
			genai.APIError{Code: 503, Status: "UNAVAILABLE"},
		} {
			for _, err := range model.GenerateContent(t.Context(), failure, false) {
				if err == nil {
					t.Errorf("%v is an answer", failure)
				}
			}
		}
		if err := gate.Close(t.Context()); err != nil {
			t.Error(err)
		}
		values = valuesOf(t, reg)
	})
	return values
}

// valuesOf are the values of all labels in a registry, by metric and label.
func valuesOf(t *testing.T, reg *prometheus.Registry) map[string][]string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]string{}
	for _, f := range families {
		names := []string{f.GetName()}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = append(names, f.GetName()+"_bucket")
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				for _, name := range names {
					at := name + " " + l.GetName()
					values[at] = append(values[at], l.GetValue())
				}
			}
		}
	}
	return values
}
