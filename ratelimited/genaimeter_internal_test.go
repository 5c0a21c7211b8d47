package ratelimited

import (
	"math"
	"reflect"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

type clampRequest struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}

type clampResponse struct {
	UsageMetadata *genai.GenerateContentResponseUsageMetadata
	Partial       bool
}

// A clamped request is a copy that asks for less output. The original, which
// other calls may share, is never changed.
func TestClampLimitsTheOutputOfACopy(t *testing.T) {
	t.Parallel()
	m, err := newGenAIMeter[*clampRequest, *clampResponse](usage.Estimator{})
	if err != nil {
		t.Fatal(err)
	}
	temperature := float32(0.5)
	for name, test := range map[string]struct {
		config *genai.GenerateContentConfig
		limit  int64
		want   int32 // 0 if the request comes back as it is
	}{
		"no config":          {nil, 100, 100},
		"no limit":           {&genai.GenerateContentConfig{Temperature: &temperature}, 100, 100},
		"a larger limit":     {&genai.GenerateContentConfig{MaxOutputTokens: 200}, 100, 100},
		"the same limit":     {&genai.GenerateContentConfig{MaxOutputTokens: 100}, 100, 0},
		"a smaller limit":    {&genai.GenerateContentConfig{MaxOutputTokens: 50}, 100, 0},
		"a limit of nothing": {nil, 0, 1},
		"a negative limit":   {nil, -5, 1},
		"more than fits":     {nil, math.MaxInt64, math.MaxInt32},
		"negative is none":   {&genai.GenerateContentConfig{MaxOutputTokens: -1}, 100, 100},
	} {
		req := &clampRequest{Model: "m", Contents: genai.Text("hello"), Config: test.config}
		var before *genai.GenerateContentConfig
		if test.config != nil {
			c := *test.config
			before = &c
		}
		got, ok := m.Clamp(req, test.limit)
		if ok != (test.want != 0) || ok == (got == req) {
			t.Errorf("%s: clamped %v, a copy: %v; want %v", name, ok, got != req, test.want != 0)
			continue
		}
		if !reflect.DeepEqual(req.Config, before) || req.Config != test.config {
			t.Errorf("%s: the original was changed to %+v", name, req.Config)
		}
		if !ok {
			continue
		}
		if got.Config.MaxOutputTokens != test.want || got.Model != "m" || len(got.Contents) != 1 {
			t.Errorf("%s: got %+v with a limit of %d, want %d", name, got, got.Config.MaxOutputTokens, test.want)
		}
		if test.config != nil && got.Config.Temperature != test.config.Temperature {
			t.Errorf("%s: the rest of the config was lost", name)
		}
	}
	if got, ok := m.Clamp(nil, 5); ok || got != nil {
		t.Error("a nil request was clamped")
	}
}
