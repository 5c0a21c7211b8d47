package main

import (
	"fmt"
	"image/color"

	"github.com/headgate-go/headgate/bench/internal/burst"
	"github.com/headgate-go/headgate/bench/internal/picture"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The measures of a plot: a grid of policies, each with the four strips of a
// panel of the page.
const (
	plotColumns  = 5
	plotMargin   = vg.Length(14)
	plotHead     = vg.Length(40)
	plotCell     = vg.Length(142)
	plotGap      = vg.Length(16)
	plotTitle    = vg.Length(30)
	plotLabel    = vg.Length(12)
	plotStrip    = vg.Length(26)
	plotStripGap = vg.Length(4)
	plotAxis     = vg.Length(12)
)

// plotRow is the height of one policy.
var plotRow = plotTitle + vg.Length(len(strips))*(plotLabel+plotStrip+plotStripGap) + plotAxis

// The colours of a plot, those of the page in daylight.
var (
	accent = color.NRGBA{0x2f, 0x6f, 0x9f, 0xff}
	tints  = map[string]color.Color{
		"flight":    accent,
		"waiting":   color.NRGBA{0x8a, 0x7d, 0xb8, 0xff},
		"use":       color.NRGBA{0x4f, 0x8f, 0x6b, 0xff},
		"throttled": color.NRGBA{0xb3, 0x37, 0x2b, 0xff},
	}
)

// plotName is a plot's file without its ending.
func plotName(s burst.Shape, w burst.Window) string { return s.Name + "-" + w.String() }

// writePlots writes name.svg and name.png.
func (r *report) writePlots(name string, s burst.Shape, w burst.Window) error {
	width, height := r.plotSize()
	return picture.Write(name, width, height, func(p picture.Pen) { r.draw(pen{p}, width, s, w) })
}

// plotSize is as wide as the policies need, but at least so wide that the title
// fits.
func (r *report) plotSize() (width, height vg.Length) {
	columns := max(min(len(r.policies), plotColumns), 3)
	rows := (len(r.policies) + plotColumns - 1) / plotColumns
	width = 2*plotMargin + vg.Length(columns)*plotCell + vg.Length(columns-1)*plotGap
	height = 2*plotMargin + plotHead + vg.Length(rows)*plotRow + vg.Length(rows-1)*plotGap
	return width, height
}

// pen draws policies.
type pen struct{ picture.Pen }

// draw draws all policies before one kind of window.
func (r *report) draw(p pen, width vg.Length, s burst.Shape, w burst.Window) {
	p.Text(plotMargin, plotMargin+12, 14, width-2*plotMargin, picture.Ink, draw.XLeft, s.Title)
	p.Text(plotMargin, plotMargin+27, 9, width-2*plotMargin, picture.Soft, draw.XLeft, fmt.Sprintf("%s window, seed %d. All panels have the same axes; the dashed line is the full quota.", heading(w), r.seed))
	axes := r.scaleOf(s, w)
	for i, policy := range r.policies {
		x := plotMargin + vg.Length(i%plotColumns)*(plotCell+plotGap)
		y := plotMargin + plotHead + vg.Length(i/plotColumns)*(plotRow+plotGap)
		p.panel(x, y, policy, r.at(s, policy, w), axes)
	}
}

// panel draws one policy with its upper left corner at x, y.
func (p pen) panel(x, y vg.Length, policy burst.Policy, res burst.Result, axes scale) {
	name := picture.Ink
	if isHeadgate(policy) {
		name = accent
		p.Box(accent, x, y, plotCell, 2)
	}
	p.Text(x, y+12, 9, plotCell, name, draw.XLeft, policy.Title)
	y += plotTitle
	if res.Err != "" {
		p.Text(x, y-8, 7, plotCell, picture.Soft, draw.XLeft, "no result")
		return
	}
	p.Text(x, y-8, 7, plotCell, picture.Soft, draw.XLeft, facts(res))
	series := thin(res.Series)
	for _, s := range strips {
		top := y + plotLabel
		peak, sum := extent(series, s)
		p.Text(x, top-3, 7, plotCell, picture.Soft, draw.XLeft, s.name)
		p.Text(x+plotCell, top-3, 7, plotCell, picture.Soft, draw.XRight, s.say(peak, sum))
		p.Box(picture.Ground, x, top, plotCell, plotStrip)
		p.values(x, top, series, s, axes)
		if s.line {
			at := top + plotStrip*vg.Length(1-min(1/s.most(axes), 1))
			p.Line(picture.Ink, []vg.Length{3, 2}, x, at, x+plotCell, at)
		}
		p.Line(picture.Soft, nil, x, top+plotStrip, x+plotCell, top+plotStrip)
		y = top + plotStrip + plotStripGap
	}
	p.Text(x, y+6, 7, plotCell, picture.Soft, draw.XLeft, "0")
	p.Text(x+plotCell, y+6, 7, plotCell, picture.Soft, draw.XRight, clock(axes.seconds))
}

// values draws the samples of a strip: steps that hold each value since the
// sample before, or a bar for each.
func (p pen) values(x, top vg.Length, series []burst.Sample, s strip, axes scale) {
	base := top + plotStrip
	at := func(seconds float64) vg.Length { return x + plotCell*vg.Length(seconds/axes.seconds) }
	steps := []vg.Point{{X: x, Y: base}}
	from := 0.0
	for _, sample := range series {
		left, right := at(from), at(sample.At)
		from = sample.At
		v := s.of(sample)
		high := plotStrip * vg.Length(min(v/s.most(axes), 1))
		if !s.bars {
			steps = append(steps, vg.Point{X: left, Y: base - high}, vg.Point{X: right, Y: base - high})
			continue
		}
		if v > 0 { // at least a point wide and high, or a single 429 is not seen
			p.Box(tints[s.class], left, base-max(high, 1.5), max(right-left, 1), max(high, 1.5))
		}
	}
	if len(steps) > 1 {
		p.Area(tints[s.class], append(steps, vg.Point{X: at(from), Y: base})...)
	}
}
