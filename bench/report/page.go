package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// The data of the page's template.
type (
	pageData struct {
		Style       template.CSS
		Lead        string
		Seed        uint64
		WindowWords string
		WindowNotes []string
		Command     string
		Overview    []panelData
		ShortIntro  string
		Short       []shortData
		Shapes      []shapeData
		Settings    []burst.Policy
		Legend      []string
		Columns     []columnData
		Tables      []tableData
	}
	panelData struct {
		Title, Facts, Short string
		Ours                bool
		Picture             template.HTML
	}
	shortData struct {
		Shape, Title string
		Windows      []shortWindow
	}
	shortWindow struct{ Window, Text string }
	shapeData   struct {
		Name, Title, Look, Setting string
		Windows                    []windowData
	}
	windowData struct {
		Title, Happened, Scale, Plot string
		Open                         bool
		Panels                       []panelData
	}
)

// writePage writes the page, with everything that it needs inside.
func (r *report) writePage(w io.Writer) error {
	d := pageData{
		Style: template.CSS(pageStyle), Lead: r.lead(), Seed: r.seed, Command: r.command(),
		WindowWords: listed(r.windows), Settings: r.policies, Columns: columnTitles(), Legend: legend,
	}
	for _, win := range r.windows {
		if note := windowNotes[win.String()]; note != "" {
			d.WindowNotes = append(d.WindowNotes, note)
		}
	}
	for _, p := range r.policies {
		d.Overview = append(d.Overview, panelData{Title: p.Title, Facts: r.clean(p), Ours: isHeadgate(p), Picture: r.overview(p)})
	}
	d.ShortIntro, d.Short = r.short()
	for _, s := range r.shapes {
		d.Shapes = append(d.Shapes, r.shape(s))
		d.Tables = append(d.Tables, r.table(s))
	}
	return pageTemplate.Execute(w, d)
}

// shape is the section of one shape.
func (r *report) shape(s burst.Shape) shapeData {
	d := shapeData{Name: s.Name, Title: s.Title, Look: look(s), Setting: setting(s)}
	open := r.firstLook()
	for _, w := range r.windows {
		c := r.scaleOf(s, w)
		wd := windowData{
			Title: heading(w) + " window", Happened: r.happened(s, w), Open: w == open, Plot: plotsFolder + "/" + plotName(s, w),
			Scale: fmt.Sprintf("All panels have the same axes: %s long; up to %s in flight, %s waiting, %s of the quota (the dashed line is all of it), %s 429s at a time.",
				clock(c.seconds), number(c.inFlight), number(c.waiting), percent(c.use), number(c.throttled)),
		}
		for _, p := range r.policies {
			res := r.at(s, p, w)
			d := panelData{Title: p.Title, Facts: facts(res), Ours: isHeadgate(p), Short: markText(r.marks(s, p, w))}
			if res.Err == "" {
				d.Picture = panel(res.Series, c, p.Title)
			}
			wd.Panels = append(wd.Panels, d)
		}
		d.Windows = append(d.Windows, wd)
	}
	return d
}

// firstLook is the kind of window that a reader sees first: the strictest.
func (r *report) firstLook() burst.Window {
	for _, w := range r.windows {
		if w.String() == "sliding" {
			return w
		}
	}
	return r.windows[0]
}

// clean counts the runs of a policy that had no 429.
func (r *report) clean(p burst.Policy) string {
	runs, clean := 0, 0
	for _, s := range r.shapes {
		for _, w := range r.windows {
			if res := r.at(s, p, w); res.Err == "" {
				runs++
				if res.Metrics.Throttled == 0 {
					clean++
				}
			}
		}
	}
	if runs == 0 {
		return "no result"
	}
	return fmt.Sprintf("%d of %d runs without a 429", clean, runs)
}

// short lists where Headgate misses what it is to reach.
func (r *report) short() (string, []shortData) {
	p, ok := r.ours()
	if !ok {
		return "Headgate was not among the policies of this report.", nil
	}
	runs, missed := 0, 0
	var list []shortData
	for _, s := range r.shapes {
		d := shortData{Shape: s.Name, Title: s.Title}
		for _, w := range r.windows {
			if r.at(s, p, w).Err != "" {
				continue
			}
			runs++
			if marks := r.marks(s, p, w); len(marks) > 0 {
				missed++
				d.Windows = append(d.Windows, shortWindow{w.String(), markText(marks)})
			}
		}
		if len(d.Windows) > 0 {
			list = append(list, d)
		}
	}
	return fmt.Sprintf("It is to have no 429 and no failed call where the provider keeps the quota that it publishes, a goodput of at least %.2f (%.2f where the quota is checked "+
		"by the second), at most %.2f times the shortest possible time where the quota binds, a Jain index of at least %.2f, at most %s of the slot time idle, "+
		"interactive calls that wait at most a fifth of what they do in order of arrival, and to be at most %.2f below the best of the others. %s does all that in %d of %d runs.",
		leastGoodput, leastQuantised, mostMakespan, leastJain, percent(mostIdle), mostBelowPeers, p.Title, runs-missed, runs), list
}

func heading(w burst.Window) string {
	name := w.String()
	return strings.ToUpper(name[:1]) + name[1:]
}

// listed is "fixed, sliding and bucket windows".
func listed(windows []burst.Window) string {
	text := ""
	for i, w := range windows {
		switch {
		case i > 0 && i == len(windows)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += w.String()
	}
	return text + " windows"
}
