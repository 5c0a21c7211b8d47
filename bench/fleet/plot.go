package main

import (
	"bufio"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/fleet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The measures of a plot: a column for each mode, with the strips below each other.
const (
	plotMargin = vg.Length(14)
	plotHead   = vg.Length(40)
	plotPanel  = vg.Length(220)
	plotGap    = vg.Length(16)
	plotTitle  = vg.Length(30)
	plotLabel  = vg.Length(12)
	plotStrip  = vg.Length(48)
	plotSpace  = vg.Length(6)
	plotAxis   = vg.Length(12)
	plotDPI    = 144
)

// The colours, those of bench/report.
var (
	paper  = color.NRGBA{0xff, 0xff, 0xff, 0xff}
	ink    = color.NRGBA{0x1d, 0x23, 0x27, 0xff}
	soft   = color.NRGBA{0x5c, 0x66, 0x6d, 0xff}
	ground = color.NRGBA{0xf1, 0xef, 0xe9, 0xff}
)

// strip is one figure over time.
type strip struct {
	title string
	tint  color.Color
	of    func(s *fleet.Sample) float64
	full  float64 // where a dashed line is drawn; 0 is nowhere
}

var strips = []strip{
	{"calls that wait", color.NRGBA{0x8a, 0x7d, 0xb8, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Waiting) }, 0},
	{"calls in flight", color.NRGBA{0x2f, 0x6f, 0x9f, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Flying) }, 0},
	{"tokens let in, over the quota's mean rate", color.NRGBA{0x4f, 0x8f, 0x6b, 0xff}, func(s *fleet.Sample) float64 { return s.Let }, 1},
	{"429s in a second", color.NRGBA{0xb3, 0x37, 0x2b, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Refused) }, 0},
	{"requests to the store in a second", color.NRGBA{0xb8, 0x8a, 0x4f, 0xff}, func(s *fleet.Sample) float64 { return float64(s.Trips) }, 0},
}

// writePlots writes name.svg and name.png.
func writePlots(name string, results []result) error {
	width, height := plotSize(len(results))
	svg := vgsvg.New(width, height)
	drawAll(draw.New(svg), results)
	if err := writeFile(name+".svg", svg); err != nil {
		return err
	}
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(plotDPI))
	drawAll(draw.New(img), results)
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

// plotSize is at least so wide that the title fits.
func plotSize(modes int) (width, height vg.Length) {
	n := vg.Length(max(modes, 2))
	width = 2*plotMargin + n*plotPanel + (n-1)*plotGap
	height = 2*plotMargin + plotHead + plotTitle + vg.Length(len(strips))*(plotLabel+plotStrip+plotSpace) + plotAxis
	return width, height
}

// pen draws from the upper left corner on, as people read.
type pen struct {
	draw.Canvas
	height vg.Length
}

// text writes at the base line y, smaller where it would be wider than this.
func (p pen) text(x, y, size, width vg.Length, c color.Color, align draw.XAlignment, text string) {
	style := styled(size)
	if w := style.Width(text); w > width {
		style = styled(size * width / w)
	}
	style.Color, style.XAlign = c, align
	p.FillText(style, vg.Point{X: x, Y: p.height - y}, text)
}

func styled(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

func (p pen) area(c color.Color, points ...vg.Point) {
	for i := range points {
		points[i].Y = p.height - points[i].Y
	}
	p.FillPolygon(c, points)
}

func (p pen) box(c color.Color, x, y, width, height vg.Length) {
	p.area(c, vg.Point{X: x, Y: y}, vg.Point{X: x + width, Y: y}, vg.Point{X: x + width, Y: y + height}, vg.Point{X: x, Y: y + height})
}

func (p pen) line(c color.Color, dashes []vg.Length, x1, y1, x2, y2 vg.Length) {
	p.StrokeLine2(draw.LineStyle{Color: c, Width: 0.6, Dashes: dashes}, x1, p.height-y1, x2, p.height-y2)
}

// drawAll draws all modes on the same axes.
func drawAll(c draw.Canvas, results []result) {
	width, height := plotSize(len(results))
	p := pen{c, height}
	p.box(paper, 0, 0, width, height)
	cfg := results[0].Config
	title := fmt.Sprintf("%d replicas, %v calls at %v of the quota, %v window", cfg.Replicas, cfg.Shape, cfg.Load, cfg.Window)
	if cfg.NoGuard {
		title += ", without the guard"
	}
	p.text(plotMargin, plotMargin+12, 14, width-2*plotMargin, ink, draw.XLeft, title)
	note := fmt.Sprintf("Seed %d. All modes have the same axes.", cfg.Seed)
	if len(cfg.Changes) > 0 {
		note += " Upright lines: replicas die or join."
	}
	p.text(plotMargin, plotMargin+27, 9, width-2*plotMargin, soft, draw.XLeft, note)
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
	m := &r.Metrics
	p.text(x, y+10, 11, plotPanel, ink, draw.XLeft, r.Config.Mode.String())
	p.text(x, y+22, 7, plotPanel, soft, draw.XLeft, fmt.Sprintf("goodput %.3f of G*, %s 429, mean wait %s, %.2f trips per call, max use %.3f",
		m.Goodput, percent(m.Throttled), seconds(m.WaitMean), m.TripsPerCall, m.MaxUse))
	y += plotTitle
	for i, s := range strips {
		top := y + plotLabel
		peak := 0.0
		for k := range r.series {
			peak = max(peak, s.of(&r.series[k]))
		}
		p.text(x, top-3, 7, plotPanel, soft, draw.XLeft, s.title)
		p.text(x+plotPanel, top-3, 7, plotPanel, soft, draw.XRight, "most "+strconv.FormatFloat(math.Round(peak*100)/100, 'f', -1, 64))
		p.box(ground, x, top, plotPanel, plotStrip)
		p.steps(x, top, r, s, most[i])
		if s.full > 0 {
			at := top + plotStrip*vg.Length(1-s.full/most[i])
			p.line(ink, []vg.Length{3, 2}, x, at, x+plotPanel, at)
		}
		for _, ch := range r.Config.Changes {
			at := x + plotPanel*vg.Length(ch.At.Seconds()/r.Config.Length.Seconds())
			p.line(ink, nil, at, top, at, top+plotStrip)
		}
		p.line(soft, nil, x, top+plotStrip, x+plotPanel, top+plotStrip)
		y = top + plotStrip + plotSpace
	}
	p.text(x, y+6, 7, plotPanel, soft, draw.XLeft, "0")
	p.text(x+plotPanel, y+6, 7, plotPanel, soft, draw.XRight, r.Config.Length.Round(time.Second).String())
}

// mostSteps is how many values a strip shows: where there are more, the largest of
// those that fall together.
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
		to, v := min(from+each, len(r.series)), 0.0
		for k := from; k < to; k++ {
			v = max(v, s.of(&r.series[k]))
		}
		high := base - plotStrip*vg.Length(v/most)
		at := func(k int) vg.Length { return x + plotPanel*vg.Length(k)/vg.Length(len(r.series)) }
		points = append(points, vg.Point{X: at(from), Y: high}, vg.Point{X: at(to), Y: high})
	}
	p.area(s.tint, append(points, vg.Point{X: x + plotPanel, Y: base})...)
}
