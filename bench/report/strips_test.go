package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// pick returns a strip by its class.
func pick(t *testing.T, class string) strip {
	t.Helper()
	for _, s := range strips {
		if s.class == class {
			return s
		}
	}
	t.Fatalf("no strip %q", class)
	return strip{}
}

func TestAStripHoldsEachValueUntilItsSample(t *testing.T) {
	t.Parallel()
	series := []burst.Sample{{At: 10, InFlight: 5, Throttled: 4}, {At: 20, InFlight: 10}, {At: 40, Throttled: 1}}
	c := scale{seconds: 40, inFlight: 10, throttled: 4}
	for class, want := range map[string]string{
		// 180 wide for 40 s, 30 high for 10: half the height until 10 s, all of it
		// until 20 s, nothing until 40 s.
		"flight": "M0 130V115H45V100H90V130H180V130z",
		// A bar for each sample that has some, the small one not below 2 high.
		"throttled": "M0 130V100H45V130zM90 130V122.5H180V130z",
	} {
		if got := pick(t, class).path(series, c, 100); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
	c.throttled = 1000
	if got, want := pick(t, "throttled").path(series[2:], scale{seconds: 8000, throttled: 1000}, 100), "M0 130V128H1V130z"; got != want {
		t.Errorf("one 429 of many: %s, want %s: one unit wide, two high", got, want)
	}
}

func TestAPanelOfNothingIsDrawnEmpty(t *testing.T) {
	t.Parallel()
	text := string(panel(nil, scale{seconds: 1, inFlight: 1, waiting: 1, throttled: 1, use: 1}, `a "b" <c>`))
	if !strings.Contains(text, `aria-label="a &#34;b&#34; &lt;c&gt;; in flight at most 0; waiting at most 0; use of quota at most 0 %; 429s none"`) {
		t.Errorf("the label does not say what there is to see: %s", text)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, `class="flight"`) {
		t.Errorf("something is drawn: %s", text)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestThinningKeepsPeaksAndCounts429s(t *testing.T) {
	t.Parallel()
	var series []burst.Sample
	for i := range 600 {
		s := burst.Sample{At: float64(i + 1), InFlight: 1, Throttled: 1, Use: 0.5}
		if i == 333 {
			s.InFlight, s.Waiting, s.Use = 70, 80, 1.25
		}
		series = append(series, s)
	}
	out := thin(series)
	if len(out) > points || len(out) < points/2 {
		t.Errorf("%d samples", len(out))
	}
	for class, want := range map[string]float64{"flight": 70, "waiting": 80, "use": 1.25} {
		if peak, _ := extent(out, pick(t, class)); peak != want {
			t.Errorf("%s: peak %v, want %v", class, peak, want)
		}
	}
	if _, sum := extent(out, pick(t, "throttled")); sum != 600 {
		t.Errorf("%v 429s, want 600", sum)
	}
	if last := out[len(out)-1].At; last != 600 {
		t.Errorf("the series ends at %v, want 600", last)
	}
	if short := series[:points]; len(thin(short)) != points {
		t.Error("a short series was thinned")
	}
}

func TestPanelsOfOneShapeShareTheirAxes(t *testing.T) {
	t.Parallel()
	r := smallReport(t)
	c := r.scaleOf(r.shapes[0], r.windows[0])
	// The longest run is that without a gate, which has the most in flight, too.
	if c.seconds != 120 || c.inFlight != 60 || c.throttled != 60 || c.waiting < 98 || c.use != 1.1 {
		t.Errorf("scale %+v", c)
	}
}

func TestTimesReadWell(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "0 s", 12.5: "12.5 s", 59: "59 s", 60: "1 min", 150: "2.5 min", 3600: "60 min"} {
		if got := clock(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
	for part, want := range map[float64]string{0: "0 %", 0.004: "0.4 %", 0.01: "1 %", 0.5: "50 %", 0.995: "99.5 %", 1: "100 %", 1.25: "125 %"} {
		if got := percent(part); got != want {
			t.Errorf("%v: %q, want %q", part, got, want)
		}
	}
}
