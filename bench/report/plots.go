package main

import (
	"bufio"
	"fmt"
	"image/color"
	"io"
	"os"

	"github.com/headgate-go/headgate/bench/internal/burst"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
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
	plotDPI      = 144
)

// plotRow is the height of one policy.
var plotRow = plotTitle + vg.Length(len(strips))*(plotLabel+plotStrip+plotStripGap) + plotAxis

// The colours of a plot, those of the page in daylight.
var (
	paper  = color.NRGBA{0xff, 0xff, 0xff, 0xff}
	ink    = color.NRGBA{0x1d, 0x23, 0x27, 0xff}
	soft   = color.NRGBA{0x5c, 0x66, 0x6d, 0xff}
	ground = color.NRGBA{0xf1, 0xef, 0xe9, 0xff}
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
	svg := vgsvg.New(width, height)
	r.draw(draw.New(svg), s, w)
	if err := writeFile(name+".svg", svg); err != nil {
		return err
	}
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(plotDPI))
	r.draw(draw.New(img), s, w)
	return writeFile(name+".png", vgimg.PngCanvas{Canvas: img})
}

func writeFile(name string, c io.WriterTo) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	b := bufio.NewWriter(f)
	if _, err := c.WriteTo(b); err != nil {
		return err
	}
	return b.Flush()
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

// pen draws from the upper left corner on, as people read.
type pen struct {
	draw.Canvas
	height vg.Length
}

// text writes at the base line y.
func (p pen) text(x, y vg.Length, size vg.Length, c color.Color, align draw.XAlignment, text string) {
	style := styled(size)
	style.Color, style.XAlign = c, align
	p.FillText(style, vg.Point{X: x, Y: p.height - y}, text)
}

// styled is text of a size.
func styled(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

// fitting is the largest size, up to the given one, at which a text is not
// wider than this.
func fitting(size, width vg.Length, text string) vg.Length {
	if w := styled(size).Width(text); w > width {
		size *= width / w
	}
	return size
}

func (p pen) area(c color.Color, points ...vg.Point) {
	for i := range points {
		points[i].Y = p.height - points[i].Y
	}
	p.FillPolygon(c, points)
}

func (p pen) line(c color.Color, dashes []vg.Length, x1, x2, y vg.Length) {
	p.StrokeLine2(draw.LineStyle{Color: c, Width: 0.6, Dashes: dashes}, x1, p.height-y, x2, p.height-y)
}

// draw draws all policies before one kind of window.
func (r *report) draw(c draw.Canvas, s burst.Shape, w burst.Window) {
	width, height := r.plotSize()
	p := pen{c, height}
	p.area(paper, vg.Point{}, vg.Point{X: width}, vg.Point{X: width, Y: height}, vg.Point{Y: height})
	p.text(plotMargin, plotMargin+12, fitting(14, width-2*plotMargin, s.Title), ink, draw.XLeft, s.Title)
	p.text(plotMargin, plotMargin+27, 9, soft, draw.XLeft, fmt.Sprintf("%s window, seed %d. All panels have the same axes; the dashed line is the full quota.", heading(w), r.seed))
	axes := r.scaleOf(s, w)
	for i, policy := range r.policies {
		x := plotMargin + vg.Length(i%plotColumns)*(plotCell+plotGap)
		y := plotMargin + plotHead + vg.Length(i/plotColumns)*(plotRow+plotGap)
		p.panel(x, y, policy, r.at(s, policy, w), axes)
	}
}

// panel draws one policy with its upper left corner at x, y.
func (p pen) panel(x, y vg.Length, policy burst.Policy, res burst.Result, axes scale) {
	name := ink
	if isHeadgate(policy) {
		name = accent
		p.area(accent, corners(x, y, plotCell, 2)...)
	}
	p.text(x, y+12, fitting(9, plotCell, policy.Title), name, draw.XLeft, policy.Title)
	y += plotTitle
	if res.Err != "" {
		p.text(x, y-8, 7, soft, draw.XLeft, "no result")
		return
	}
	p.text(x, y-8, fitting(7, plotCell, facts(res)), soft, draw.XLeft, facts(res))
	series := thin(res.Series)
	for _, s := range strips {
		top := y + plotLabel
		peak, sum := extent(series, s)
		p.text(x, top-3, 7, soft, draw.XLeft, s.name)
		p.text(x+plotCell, top-3, 7, soft, draw.XRight, s.say(peak, sum))
		p.area(ground, corners(x, top, plotCell, plotStrip)...)
		p.values(x, top, series, s, axes)
		if s.line {
			p.line(ink, []vg.Length{3, 2}, x, x+plotCell, top+plotStrip*vg.Length(1-min(1/s.most(axes), 1)))
		}
		p.line(soft, nil, x, x+plotCell, top+plotStrip)
		y = top + plotStrip + plotStripGap
	}
	p.text(x, y+6, 7, soft, draw.XLeft, "0")
	p.text(x+plotCell, y+6, 7, soft, draw.XRight, clock(axes.seconds))
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
			p.area(tints[s.class], corners(left, base-max(high, 1.5), max(right-left, 1), max(high, 1.5))...)
		}
	}
	if len(steps) > 1 {
		p.area(tints[s.class], append(steps, vg.Point{X: at(from), Y: base})...)
	}
}

func corners(x, y, width, height vg.Length) []vg.Point {
	return []vg.Point{{X: x, Y: y}, {X: x + width, Y: y}, {X: x + width, Y: y + height}, {X: x, Y: y + height}}
}
