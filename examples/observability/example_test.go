package observability

import (
	"context"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate-go/headgate/budget/quota"
)

// How many people come near their limits is no metric of Headgate. Events tell, and a
// listener counts them: by the name of the limit and the percentage, which are few,
// and never by whose limit it is.
//
//	increase(app_quota_thresholds_total{percent="80", scope="tenant"}[10m]) > 0
func Example_thresholds() {
	reached := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "app_quota_thresholds_total", Help: "How often part of a limit on people was used up.",
	}, []string{"limit", "scope", "percent"})
	bus := quota.NewBus(quota.BusConfig{})
	bus.Subscribe(func(e quota.Event) {
		if t, ok := e.(quota.ThresholdReached); ok {
			reached.WithLabelValues(t.Limit, string(t.Scope), strconv.Itoa(t.Percent)).Inc()
		}
	})

	// The enforcer publishes these, once per limit, window and whose it is.
	for _, tenant := range []string{"acme", "globex"} {
		bus.Publish(quota.ThresholdReached{
			Occasion: quota.Occasion{Subject: quota.Subject{Tenant: tenant}},
			Limit:    "company", Scope: quota.Tenant, Percent: 80, Spent: 44_000, Max: 55_000,
		})
	}
	if err := bus.Close(context.Background()); err != nil { // delivers what waits
		fmt.Println(err)
	}
	var m dto.Metric
	if err := reached.WithLabelValues("company", "tenant", "80").Write(&m); err != nil {
		fmt.Println(err)
	}
	fmt.Println(m.GetCounter().GetValue())
	// Output: 2
}
