package route_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/retry"
)

func TestWhatIsWrongWithAConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	good := func() []way { return []way{via(t, "a", answers(0)), via(t, "b", answers(0))} }
	other := func() LLM { f := answers(0); f.name = "other"; return f }
	for want, c := range map[string]struct {
		cfg  route.Config
		edit func(ways []way) []way
	}{
		`Config.Name is "\xff"`:        {cfg: route.Config{Name: "\xff"}},
		`Config.MaxWait is -1s`:        {cfg: route.Config{MaxWait: ptr(-time.Second)}},
		`Config.Spill is -1s`:          {cfg: route.Config{Spill: -time.Second}},
		`Classifiers[0] is nil`:        {cfg: route.Config{Classifiers: []retry.Classifier{nil}}},
		`Routes is empty`:              {edit: func([]way) []way { return nil }},
		`Routes has 33 entries`:        {edit: func(w []way) []way { return append(w, make([]way, 31)...) }},
		`Routes[1].Name is empty`:      {edit: func(w []way) []way { w[1].Name = ""; return w }},
		`Routes[1].Name is "\xff"`:     {edit: func(w []way) []way { w[1].Name = "\xff"; return w }},
		`Routes[1].Name is "a", which`: {edit: func(w []way) []way { w[1].Name = "a"; return w }},
		`Routes[0].Model is nil`:       {edit: func(w []way) []way { w[0].Model = nil; return w }},
		`Routes[1].Model is nil`:       {edit: func(w []way) []way { w[1].Model = (*wrapped)(nil); return w }},
		`Routes[0].Tier is -1`:         {edit: func(w []way) []way { w[0].Tier = -1; return w }},
		`Routes[0].Weight is -2`:       {edit: func(w []way) []way { w[0].Weight = -2; return w }},
		`Routes[0].Weight is NaN`:      {edit: func(w []way) []way { w[0].Weight = math.NaN(); return w }},
		`Routes[0].Weight is +Inf`:     {edit: func(w []way) []way { w[0].Weight = math.Inf(1); return w }},
		`Routes[1].Gate is nil`:        {edit: func(w []way) []way { w[1].Model = answers(0); return w }},
		`Routes[1].Gate is not that`:   {edit: func(w []way) []way { w[1].Gate = gateOf(w[0]); return w }},
		`Routes[1].Rewrite is nil, but its model is "other"`: {edit: func(w []way) []way {
			return append(w[:1], via(t, "b", other()))
		}},
	} {
		ways := good()
		if c.edit != nil {
			ways = c.edit(ways)
		}
		if _, err := route.New(c.cfg, ways); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %s", err, want)
		}
	}
	if _, err := route.New(route.Config{}, good()); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
}

func TestAPoolDoesNotChangeTheRoutesThatItIsGiven(t *testing.T) {
	t.Parallel()
	ways := []way{at(1, via(t, "b", answers(0))), via(t, "a", answers(0))}
	p := newPool(t, route.Config{}, ways...)
	if ways[0].Name != "b" || ways[0].Weight != 0 || ways[0].Gate != nil {
		t.Errorf("the first route has become %q of weight %v", ways[0].Name, ways[0].Weight)
	}
	if s := p.Stats(); s[0].Name != "a" || s[1].Name != "b" {
		t.Errorf("stats begin with %q, want the routes by tiers", s[0].Name)
	}
}

// Two pools of one name cannot share a registry, and leave it as it was.
func TestARegistryThatRefusesIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	ways := []way{via(t, "a", answers(0))}
	if _, err := route.New(route.Config{Name: "chat", Registerer: reg}, ways); err != nil {
		t.Fatal(err)
	}
	_, err := route.New(route.Config{Name: "chat", Registerer: reg}, ways)
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) || !strings.Contains(err.Error(), "Config.Registerer") {
		t.Errorf("got %v, want an error of Config.Registerer", err)
	}
	if _, err := route.New(route.Config{Name: "other", Registerer: reg}, ways); err != nil {
		t.Errorf("another name: %v", err)
	}
	if _, err := route.New(route.Config{Registerer: (*prometheus.Registry)(nil)}, ways); err != nil {
		t.Errorf("a nil registry that is dressed up: %v", err)
	}
	if _, err := ratelimited.New[*LLMRequest, *LLMResponse](newPool(t, route.Config{}, ways...), gateOf(ways[0])); err == nil {
		t.Error("the pool's only gate is put around it")
	}
}
