package main

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// The measures of a panel, in the units of its picture: four strips above one
// another, each under a line of text.
const (
	panelWidth  = 180
	labelHeight = 13
	stripHeight = 30
	stripGap    = 5
	axisHeight  = 13
)

// strip is one quantity over time.
type strip struct {
	class string // of the style sheet
	name  string
	of    func(burst.Sample) float64
	most  func(scale) float64
	bars  bool // a bar for each sample, in place of an area
	line  bool // a line where the value is 1
	say   func(peak float64, sum float64) string
}

// strips are what every panel shows, from top to bottom.
var strips = []strip{
	{class: "flight", name: "in flight", of: func(s burst.Sample) float64 { return float64(s.InFlight) },
		most: func(c scale) float64 { return c.inFlight }, say: func(p, _ float64) string { return "at most " + number(p) }},
	{class: "waiting", name: "waiting", of: func(s burst.Sample) float64 { return float64(s.Waiting) },
		most: func(c scale) float64 { return c.waiting }, say: func(p, _ float64) string { return "at most " + number(p) }},
	{class: "use", name: "use of quota", of: func(s burst.Sample) float64 { return s.Use }, line: true,
		most: func(c scale) float64 { return c.use }, say: func(p, _ float64) string { return "at most " + percent(p) }},
	{class: "throttled", name: "429s", of: func(s burst.Sample) float64 { return float64(s.Throttled) }, bars: true,
		most: func(c scale) float64 { return c.throttled }, say: func(_, sum float64) string {
			if sum == 0 {
				return "none"
			}
			return number(sum) + " in all"
		}},
}

// panel draws what happened over time as an SVG element of the page.
func panel(series []burst.Sample, c scale, title string) template.HTML {
	series = thin(series)
	height := len(strips)*(labelHeight+stripHeight+stripGap) + axisHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="panel" viewBox="0 0 %d %d" role="img" aria-label="%s">`, panelWidth, height,
		html.EscapeString(describe(series, title)))
	for i, s := range strips {
		top := i*(labelHeight+stripHeight+stripGap) + labelHeight
		peak, sum := extent(series, s)
		fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><text class="end" x="%d" y="%d">%s</text>`,
			top-4, s.name, panelWidth, top-4, s.say(peak, sum))
		fmt.Fprintf(&b, `<rect class="ground" x="0" y="%d" width="%d" height="%d"/>`, top, panelWidth, stripHeight)
		if d := s.path(series, c, top); d != "" {
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, s.class, d)
		}
		if s.line {
			y := place(1, s.most(c), top)
			fmt.Fprintf(&b, `<path class="full" d="M0 %sH%d"/>`, y, panelWidth)
		}
		fmt.Fprintf(&b, `<path class="base" d="M0 %dH%d"/>`, top+stripHeight, panelWidth)
	}
	fmt.Fprintf(&b, `<text x="0" y="%d">0</text><text class="end" x="%d" y="%d">%s</text></svg>`,
		height-3, panelWidth, height-3, clock(c.seconds))
	return template.HTML(b.String())
}

// describe says what a panel shows to those who cannot see it.
func describe(series []burst.Sample, title string) string {
	parts := []string{title}
	for _, s := range strips {
		peak, sum := extent(series, s)
		parts = append(parts, s.name+" "+s.say(peak, sum))
	}
	return strings.Join(parts, "; ")
}

// extent is the largest value of a strip, and the sum of all.
func extent(series []burst.Sample, s strip) (peak, sum float64) {
	for _, x := range series {
		peak, sum = max(peak, s.of(x)), sum+s.of(x)
	}
	return peak, sum
}

// path draws the strip's values from the top on: steps that hold each value
// since the sample before, closed at the base; or bars.
func (s strip) path(series []burst.Sample, c scale, top int) string {
	base := top + stripHeight
	var b strings.Builder
	from := 0.0
	for i, x := range series {
		left, right := from/c.seconds*panelWidth, x.At/c.seconds*panelWidth
		from = x.At
		v := s.of(x)
		switch {
		case s.bars && v == 0:
		case s.bars:
			// At least one unit wide and high, or a single 429 is not seen.
			y := math.Min(float64(base)-float64(stripHeight)*v/s.most(c), float64(base-2))
			fmt.Fprintf(&b, "M%s %dV%sH%sV%dz", coordinate(left), base, coordinate(y), coordinate(max(right, left+1)), base)
		case i == 0:
			fmt.Fprintf(&b, "M%s %dV%sH%s", coordinate(left), base, place(v, s.most(c), top), coordinate(right))
		default:
			fmt.Fprintf(&b, "V%sH%s", place(v, s.most(c), top), coordinate(right))
		}
	}
	if !s.bars && len(series) > 0 {
		fmt.Fprintf(&b, "V%dz", base)
	}
	return b.String()
}

// place is the height of a value in a strip.
func place(v, most float64, top int) string {
	return coordinate(float64(top) + stripHeight*(1-min(v/most, 1)))
}

// coordinate writes a tenth of a unit, which is finer than a pixel.
func coordinate(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// number writes a count.
func number(x float64) string { return strconv.FormatFloat(math.Round(x), 'f', -1, 64) }

// clock writes seconds as people read them.
func clock(seconds float64) string {
	switch {
	case seconds >= 600:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds >= 60:
		return strings.Replace(fmt.Sprintf("%.1f min", seconds/60), ".0 ", " ", 1)
	}
	return strings.Replace(fmt.Sprintf("%.1f s", seconds), ".0 ", " ", 1)
}

// The measures of a picture of the overview.
const (
	overviewWidth  = panelWidth
	overviewHeight = 150
	overviewTop    = 13
	overviewBottom = 13
)

// overview draws one policy's results, a dot for each shape and window: how
// much of what was possible it made, upwards, and which part of its attempts
// were refused, to the right.
func (r *report) overview(p burst.Policy) template.HTML {
	const inset, foot = 5, overviewHeight - overviewBottom
	across := func(part float64) string { return coordinate(inset + (overviewWidth-2*inset)*min(part, 1)) }
	up := func(part float64) string {
		return coordinate(foot - inset - (foot-overviewTop-2*inset)*min(part, 1))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="overview" viewBox="0 0 %d %d" role="img" aria-label="%s: %s">`,
		overviewWidth, overviewHeight, html.EscapeString(p.Title), r.clean(p))
	fmt.Fprintf(&b, `<rect class="ground" x="0" y="%d" width="%d" height="%d"/>`, overviewTop, overviewWidth, foot-overviewTop)
	for _, part := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(&b, `<path class="grid" d="M%s %dV%dM0 %sH%d"/>`, across(part), overviewTop, foot, up(part), overviewWidth)
	}
	for _, s := range r.shapes {
		for _, w := range r.windows {
			res := r.at(s, p, w)
			if res.Err != "" {
				continue
			}
			m, class := res.Metrics, "dot"
			if m.Throttled == 0 {
				class = "dot clean"
			}
			fmt.Fprintf(&b, `<circle class="%s" cx="%s" cy="%s" r="3"><title>%s, %s window: share %.2f, %s of attempts throttled</title></circle>`,
				class, across(m.ThrottledPerAttempt), up(m.Share), html.EscapeString(s.Title), w, m.Share, percent(m.ThrottledPerAttempt))
		}
	}
	fmt.Fprintf(&b, `<text x="0" y="9">all that was possible</text><text x="0" y="%d">none throttled</text><text class="end" x="%d" y="%d">all throttled</text></svg>`,
		overviewHeight-2, overviewWidth, overviewHeight-2)
	return template.HTML(b.String())
}
