package main

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/fleet"
	"github.com/headgate-go/headgate/bench/internal/picture"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The measures of a plot: a column for each mode, with the strips below each other.
const (
	plotMargin = vg.Length(14)
	plotHead   = vg.Length(40)
	plotPanel  = vg.Length(220)
	plotGap    = vg.Length(16)
	plotTitle  = vg.Length(21)
	plotLine   = vg.Length(9)
	plotLabel  = vg.Length(12)
	plotStrip  = vg.Length(48)
	plotSpace  = vg.Length(6)
	plotAxis   = vg.Length(12)
)

// strip is one figure over time.
type strip struct {
	title string
	tint  color.Color
	of    func(s *fleet.Sample) float64
	full  float64 // where a dashed line is drawn; 0 is nowhere
	low   bool    // of values that fall together the smallest is shown
}

var strips = []strip{
	{"calls that wait", color.NRGBA{0x8a, 0x7d, 0xb8, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Waiting) }, 0, false},
	{"p50 of the waits of calls that were sent in a second, in s", color.NRGBA{0x8a, 0x7d, 0xb8, 0xff}, func(s *fleet.Sample) float64 { return s.WaitP50 }, 0, false},
	{"p99 of these", color.NRGBA{0x8a, 0x7d, 0xb8, 0xff}, func(s *fleet.Sample) float64 { return s.WaitP99 }, 0, false},
	{"calls in flight", color.NRGBA{0x2f, 0x6f, 0x9f, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Flying) }, 0, false},
	{"tokens let in, over the quota's mean rate", color.NRGBA{0x4f, 0x8f, 0x6b, 0xff}, func(s *fleet.Sample) float64 { return s.Let }, 1, false},
	{"Jain over homes of what ten seconds gave", color.NRGBA{0x4f, 0x8f, 0x6b, 0xff}, func(s *fleet.Sample) float64 { return s.Jain }, 1, true},
	{"429s in a second", color.NRGBA{0xb3, 0x37, 0x2b, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Refused) }, 0, false},
	{"requests to the store in a second", color.NRGBA{0xb8, 0x8a, 0x4f, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Trips) }, 0, false},
}

// writePlots writes name.svg and name.png.
func writePlots(name string, results []result) error {
	width, height := plotSize(results)
	return picture.Write(name, width, height, func(p picture.Pen) { drawAll(pen{p}, width, results) })
}

// plotSize is at least so wide that the title fits.
func plotSize(results []result) (width, height vg.Length) {
	n := vg.Length(max(len(results), 2))
	width = 2*plotMargin + n*plotPanel + (n-1)*plotGap
	height = 2*plotMargin + plotHead + titleOf(&results[0]) + vg.Length(len(strips))*(plotLabel+plotStrip+plotSpace) + plotAxis
	return width, height
}

// titleOf is the room for a mode's name and figures.
func titleOf(r *result) vg.Length { return plotTitle + vg.Length(len(figures(r)))*plotLine }

// figures are those of the table, in lines.
func figures(r *result) []string {
	m := &r.Metrics
	lines := []string{
		fmt.Sprintf("goodput %.3f of G*, %s 429, max use %.3f, overshoot %.3f", m.Goodput, percent(m.Throttled), m.MaxUse, m.Overshoot),
		fmt.Sprintf("wait %s in the mean, p50 %s, p99 %s, %.2f trips per call", seconds(m.WaitMean), seconds(m.WaitP50), seconds(m.WaitP99), m.TripsPerCall),
		fmt.Sprintf("Jain %.3f over users, %.3f over replicas, %.3f over those that wait", m.JainUsers, m.JainReplicas, m.JainWaiting),
	}
	for i, ch := range r.Config.Changes {
		lines = append(lines, changeTitle(ch)+": "+settledIn(m.Settled[i]))
	}
	return lines
}

// pen draws modes.
type pen struct{ picture.Pen }

// drawAll draws all modes on the same axes.
func drawAll(p pen, width vg.Length, results []result) {
	cfg := results[0].Config
	title := fmt.Sprintf("%d replicas, %v calls at %v of the quota, %v window", cfg.Replicas, cfg.Shape, cfg.Load, cfg.Window)
	if cfg.NoGuard {
		title += ", without the guard"
	}
	p.Text(plotMargin, plotMargin+12, 14, width-2*plotMargin, picture.Ink, draw.XLeft, title)
	note := fmt.Sprintf("Seed %d. All modes have the same axes.", cfg.Seed)
	if len(cfg.Changes) > 0 {
		note += " Upright lines: replicas die or join."
	}
	p.Text(plotMargin, plotMargin+27, 9, width-2*plotMargin, picture.Soft, draw.XLeft, note)
	most := scales(results)
	for i := range results {
		x := plotMargin + vg.Length(i)*(plotPanel+plotGap)
		p.panel(x, plotMargin+plotHead, &results[i], most)
	}
}

// scales are the largest values of each strip, over all modes.
func scales(results []result) (most []float64) {
	most = make([]float64, len(strips))
	for i, s := range strips {
		most[i] = s.full
		for _, r := range results {
			for k := range r.series {
				most[i] = max(most[i], s.of(&r.series[k]))
			}
		}
	}
	return most
}

// panel draws one mode with its upper left corner at x, y.
func (p pen) panel(x, y vg.Length, r *result, most []float64) {
	p.Text(x, y+10, 11, plotPanel, picture.Ink, draw.XLeft, r.Config.Mode.String())
	for i, line := range figures(r) {
		p.Text(x, y+22+vg.Length(i)*plotLine, 7, plotPanel, picture.Soft, draw.XLeft, line)
	}
	y += titleOf(r)
	for i, s := range strips {
		top := y + plotLabel
		peak := 0.0
		for k := range r.series {
			peak = max(peak, s.of(&r.series[k]))
		}
		p.Text(x, top-3, 7, plotPanel, picture.Soft, draw.XLeft, s.title)
		p.Text(x+plotPanel, top-3, 7, plotPanel, picture.Soft, draw.XRight, "most "+strconv.FormatFloat(math.Round(peak*100)/100, 'f', -1, 64))
		p.Box(picture.Ground, x, top, plotPanel, plotStrip)
		p.steps(x, top, r, s, most[i])
		if s.full > 0 {
			at := top + plotStrip*vg.Length(1-s.full/most[i])
			p.Line(picture.Ink, []vg.Length{3, 2}, x, at, x+plotPanel, at)
		}
		for _, ch := range r.Config.Changes {
			at := x + plotPanel*vg.Length(ch.At.Seconds()/r.Config.Length.Seconds())
			p.Line(picture.Ink, nil, at, top, at, top+plotStrip)
		}
		p.Line(picture.Soft, nil, x, top+plotStrip, x+plotPanel, top+plotStrip)
		y = top + plotStrip + plotSpace
	}
	p.Text(x, y+6, 7, plotPanel, picture.Soft, draw.XLeft, "0")
	p.Text(x+plotPanel, y+6, 7, plotPanel, picture.Soft, draw.XRight, r.Config.Length.Round(time.Second).String())
}

// mostSteps is how many values a strip shows: where there are more, the largest of
// those that fall together, or the smallest.
const mostSteps = 600

// steps draws the values of a strip.
func (p pen) steps(x, top vg.Length, r *result, s strip, most float64) {
	if most == 0 || len(r.series) == 0 {
		return
	}
	base := top + plotStrip
	each := (len(r.series) + mostSteps - 1) / mostSteps
	points := []vg.Point{{X: x, Y: base}}
	for from := 0; from < len(r.series); from += each {
		to, v := min(from+each, len(r.series)), s.of(&r.series[from])
		for k := from + 1; k < to; k++ {
			if x := s.of(&r.series[k]); s.low {
				v = min(v, x)
			} else {
				v = max(v, x)
			}
		}
		high := base - plotStrip*vg.Length(v/most)
		at := func(k int) vg.Length { return x + plotPanel*vg.Length(k)/vg.Length(len(r.series)) }
		points = append(points, vg.Point{X: at(from), Y: high}, vg.Point{X: at(to), Y: high})
	}
	p.Area(s.tint, append(points, vg.Point{X: x + plotPanel, Y: base})...)
}
