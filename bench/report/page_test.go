package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// page renders the page of a report.
func page(t *testing.T, r *report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.writePage(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestThePageHasAPanelForEachResultAndARowForEachCell(t *testing.T) {
	t.Parallel()
	text := page(t, smallReport(t))
	for what, n := range map[string]struct {
		of   string
		want int
	}{
		"sections of shapes":      {`<section id="h`, 2},
		"kinds of windows":        {`<summary>`, 6},
		"windows open at first":   {`<details open>`, 2},
		"panels, without oracles": {`<svg class="panel"`, 12},
		"overviews":               {`<svg class="overview"`, 3},
		"dots of the overview":    {`<circle `, 12},
		"rows of the table":       {`<th scope="row">`, 18},
		"groups of the table":     {`<th scope="rowgroup"`, 2},
		"links to plots":          {`.svg">SVG</a>, <a href="plots/`, 6},
		"settings":                {`<dt>`, 3},
		"cards of Headgate":       {`class="card ours"`, 7},
		"rows of Headgate":        {`<tr class="ours">`, 6},
	} {
		if got := strings.Count(text, n.of); got != n.want {
			t.Errorf("%s: %d, want %d", what, got, n.want)
		}
	}
	if got := strings.Count(text, `<th scope="col"`); got != len(columns)+3 {
		t.Errorf("%d columns", got)
	}
}

func TestWhatFallsShortIsSaidInWordsWhereverItStands(t *testing.T) {
	t.Parallel()
	text := page(t, smallReport(t))
	// Headgate misses one figure, in one cell: in the list, at its panel, in its row.
	if got := strings.Count(text, "goodput 0.900, below 0.97"); got != 3 {
		t.Errorf("%d places say what Headgate misses, want 3", got)
	}
	if !strings.Contains(text, `<a href="#hog">One &#34;hog&#34; &lt;beside&gt; ten small users</a><ul>
<li>bucket window: goodput 0.900, below 0.97.</li>`) {
		t.Error("the list of what Headgate misses does not name the cell")
	}
	if !strings.Contains(text, "does all that in 5 of 6 runs") {
		t.Error("the page does not count the runs that reach everything")
	}
	// What is marked by its look is said in words in the same row.
	rows := regexp.MustCompile(`(?s)<tr[^>]*><th scope="row">.*?</tr>`).FindAllString(text, -1)
	for _, row := range rows {
		words := regexp.MustCompile(`<td class="words">([^<]*)</td></tr>$`).FindStringSubmatch(row)
		if words == nil {
			t.Fatalf("a row without words: %s", row)
		}
		if marked := strings.Count(row, `class="marked"`); marked > 0 && strings.Count(words[1], ";")+1 != marked {
			t.Errorf("%d cells are marked, the words are %q", marked, words[1])
		}
	}
}

func TestThePageIsSelfContainedAndWellFormed(t *testing.T) {
	t.Parallel()
	text := page(t, smallReport(t))
	for _, outside := range []string{"<script", "<link", "@import", "url(", "http://", "https://", "src="} {
		if strings.Contains(text, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	closed := regexp.MustCompile(`<meta [^>]*`).ReplaceAllString(strings.TrimPrefix(text, "<!DOCTYPE html>"), "$0/") // the one kind that HTML leaves open
	d := xml.NewDecoder(strings.NewReader(strings.ReplaceAll(closed, "<details open>", `<details open="">`)))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if ids[m[1]] {
			t.Errorf("two elements have the id %q", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if !ids[m[1]] {
			t.Errorf("a link to #%s leads nowhere", m[1])
		}
	}
	if !strings.Contains(text[:1024], generator) {
		t.Error("the page does not say at its beginning that it is a report")
	}
}

func TestThePageSaysHowItWasMade(t *testing.T) {
	t.Parallel()
	r := smallReport(t)
	if got, want := r.command(), "go run ./bench/report -out report/ -seed 7"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	r.shapes, r.windows = r.shapes[:1], r.windows[1:]
	if got, want := r.command(), "go run ./bench/report -out report/ -seed 7 -shape herd -window sliding,bucket"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
}

func TestAReportOfOneCellStands(t *testing.T) {
	t.Parallel()
	for _, policy := range small().policies {
		c := small()
		o := options{shapes: c.shapes[:1], policies: []burst.Policy{policy}, windows: c.windows[:1]}
		res, err := play(o.shapes[0], policy, o.windows[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		if text := page(t, newReport(o, c, []burst.Result{res})); !strings.Contains(text, "<details open>") {
			t.Errorf("%s: no window is open", policy.Name)
		}
	}
}

func TestEveryShapeHasItsWordsAndNoOther(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range everything().shapes {
		known[s.Name] = true
		if look(s) == "" {
			t.Errorf("nothing says what to look for in %s", s.Name)
		}
	}
	for name := range looks {
		if !known[name] {
			t.Errorf("words for a shape %q that there is not", name)
		}
	}
}

func TestASettingSaysWhatIsOddAboutTheProvider(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]burst.Shape{
		"No quota.": {},
		"Quota: 1,000 requests and 1,000,000 tokens a minute. 30 slots. Calls wait for at most 20s. Calls keep coming for 10m.": {
			RequestsPerMinute: 1000, TokensPerMinute: 1_000_000, Slots: 30, MaxWait: 20 * time.Second, Stream: 10 * time.Minute},
		"Quota: 600 requests a minute. The provider serves at most 8 at once. The provider lets only 80 % of the published quota through. It checks the quota over 1s, too.": {
			RequestsPerMinute: 600, Concurrency: 8, Granted: 0.8, Quantum: time.Second},
		"No quota. It sees a call 1s to 3s after it was sent. It answers 503 from 1m to 2m.": {
			Delay: time.Second, Jitter: 2 * time.Second, OutageFrom: time.Minute, OutageTo: 2 * time.Minute},
		"No quota. It sees a call 50ms after it was sent.": {Delay: 50 * time.Millisecond},
	} {
		if got := setting(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
