// Package picture draws the plots of the benchmark programs, which look alike: on
// paper, from the upper left corner on, as people read, in points. What is drawn once
// is written as SVG and as PNG.
package picture

import (
	"bufio"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours that all plots share, those of the page of bench/report in daylight.
var (
	Paper  = color.NRGBA{0xff, 0xff, 0xff, 0xff}
	Ink    = color.NRGBA{0x1d, 0x23, 0x27, 0xff}
	Soft   = color.NRGBA{0x5c, 0x66, 0x6d, 0xff}
	Ground = color.NRGBA{0xf1, 0xef, 0xe9, 0xff}
)

// dpi is the resolution of a PNG, in dots per inch.
const dpi = 144

// Write draws twice, and writes name.svg and name.png, both in width and height.
func Write(name string, width, height vg.Length, paint func(Pen)) error {
	svg := vgsvg.New(width, height)
	paint(start(draw.New(svg), width, height))
	if err := writeFile(name+".svg", svg); err != nil {
		return err
	}
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	paint(start(draw.New(img), width, height))
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

// Pen draws on a picture. Heights grow downwards.
type Pen struct {
	canvas draw.Canvas
	height vg.Length
}

func start(c draw.Canvas, width, height vg.Length) Pen {
	p := Pen{c, height}
	p.Box(Paper, 0, 0, width, height)
	return p
}

// Text writes at the base line y, smaller where it would be wider than width.
func (p Pen) Text(x, y, size, width vg.Length, c color.Color, align draw.XAlignment, text string) {
	style := styled(size)
	if w := style.Width(text); w > width {
		style = styled(size * width / w)
	}
	style.Color, style.XAlign = c, align
	p.canvas.FillText(style, vg.Point{X: x, Y: p.height - y}, text)
}

// styled is text of a size.
func styled(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

// Area fills a polygon. It changes points.
func (p Pen) Area(c color.Color, points ...vg.Point) {
	for i := range points {
		points[i].Y = p.height - points[i].Y
	}
	p.canvas.FillPolygon(c, points)
}

// Box fills a rectangle with its upper left corner at x, y.
func (p Pen) Box(c color.Color, x, y, width, height vg.Length) {
	p.Area(c, vg.Point{X: x, Y: y}, vg.Point{X: x + width, Y: y}, vg.Point{X: x + width, Y: y + height}, vg.Point{X: x, Y: y + height})
}

// Line draws a line; nil dashes are a solid one.
func (p Pen) Line(c color.Color, dashes []vg.Length, x1, y1, x2, y2 vg.Length) {
	p.canvas.StrokeLine2(draw.LineStyle{Color: c, Width: 0.6, Dashes: dashes}, x1, p.height-y1, x2, p.height-y2)
}
