package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is a page in a real Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	troubles []string // what the console says
}

// chromium finds the browser. Without one the test is skipped, or fails where all
// programs must be there.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no chromium in PATH; on Debian: apt-get install chromium"
	if os.Getenv("HEADGATE_REQUIRE_SERVERS") == "1" {
		t.Fatal(missing + " (HEADGATE_REQUIRE_SERVERS=1 requires it)")
	}
	t.Skip(missing)
	return ""
}

// browse serves the program on a real socket and opens its page.
func browse(t *testing.T, limits []byte) *browser {
	t.Helper()
	path := chromium(t)
	a, err := newApp(appConfig{
		adminToken: testToken, host: loopback, latency: 30 * time.Millisecond, limits: limits,
		logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a.handler)
	t.Cleanup(func() {
		a.board.end()
		srv.Close()
		if err := a.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1000, 800))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none as root
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	b := &browser{t: t, ctx: ctx, url: srv.URL}
	if err := chromedp.Listen(ctx, b.listen); err != nil { // starts the browser
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(srv.URL))
	return b
}

// listen notes what the console says went wrong in the page.
func (b *browser) listen(event any) {
	trouble := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		trouble = e.ExceptionDetails.Text
	case *browserlog.EventEntryAdded:
		if e.Entry.Level == browserlog.EntryLevelError {
			trouble = e.Entry.Text
		}
	}
	if trouble != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.troubles = append(b.troubles, trouble)
	}
}

// run runs a part of the test, in the page as the parts before have left it.
func (b *browser) run(t *testing.T, name string, part func(*testing.T)) {
	whole := b.t
	defer func() { b.t = whole }()
	ok := t.Run(name, func(t *testing.T) {
		b.t = t
		part(t)
	})
	if !ok {
		t.FailNow() // what follows builds on it
	}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	wait := chromedp.Poll[chromedp.Void]("Boolean("+expression+")", chromedp.WithPollingTimeout(10*time.Second), chromedp.WithPollingInterval(20*time.Millisecond))
	if err := chromedp.Do(b.ctx, wait); err != nil {
		b.t.Fatalf("%v while waiting for %s; the page is\n%s", err, expression, b.text("document.body.innerText"))
	}
}

// text is the value of an expression as text.
func (b *browser) text(expression string) string {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// keys presses keys, wherever the focus is.
func (b *browser) keys(keys string, options ...chromedp.KeyOption) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys, options...))
}

// focused says what has the focus.
func (b *browser) focused() string {
	b.t.Helper()
	return b.text(`(e => e.id || e.value || e.type || e.tagName)(document.activeElement)`)
}

// noon is the embedded limits in a zone in which the day is far from its end, so that
// no test runs over one.
func noon(now time.Time) (limits []byte, midnight time.Time) {
	east := 12 - now.UTC().Hour() // hours: -11 to 12
	// The names of these zones count to the west.
	zone := fmt.Sprintf("zone: Etc/GMT%+d", -east)
	local := now.In(time.FixedZone("", east*3600))
	midnight = time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, local.Location())
	return bytes.Replace(limitsFile, []byte("zone: UTC"), []byte(zone), 1), midnight
}

func TestThePageInABrowser(t *testing.T) {
	limits, midnight := noon(time.Now())
	b := browse(t, limits)
	b.until(`document.querySelector("#link").textContent === "Live." && document.querySelectorAll("progress").length > 0`)

	b.run(t, "shows who has which budget", func(t *testing.T) {
		budgets := b.text(`document.querySelector("#budgets").innerText`)
		for _, want := range []string{"alice of acme", "bob of globex", "carol of acme, plan pro", "acme together", "everybody together", "$0.000 of $0.035"} {
			if !strings.Contains(budgets, want) {
				t.Errorf("there is no %q in\n%s", want, budgets)
			}
		}
	})
	b.run(t, "is used with the keyboard only", func(t *testing.T) {
		var order []string
		for range 5 {
			b.keys(kb.Tab)
			order = append(order, b.focused())
		}
		if got, want := strings.Join(order, " "), "chat alice message submit log"; got != want {
			t.Fatalf("the focus goes %s, want %s", got, want)
		}
		if got := b.text(`getComputedStyle(document.activeElement).outlineStyle`); got != "solid" {
			t.Errorf("what has the focus has the outline %q", got)
		}
		for range 2 {
			b.keys(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift))
		}
		if got := b.focused(); got != "message" {
			t.Fatalf("back, the focus is at %s", got)
		}
		for i := range 3 {
			b.keys("Where is my parcel?" + kb.Enter)
			b.until(fmt.Sprintf(`document.querySelectorAll("#chat .answer").length === %d`, i+1))
		}
		if got := b.text(`document.querySelector("#chat .answer").textContent`); !strings.Contains(got, "parcel left our warehouse") {
			t.Errorf("the answer is %q", got)
		}
		if got := b.focused(); got != "message" {
			t.Errorf("after the answers the focus is at %s", got)
		}
	})
	b.run(t, "the fourth message of alice is refused until midnight", func(t *testing.T) {
		b.keys("And now?" + kb.Enter)
		b.until(`document.querySelector("#chat .bad time")`)
		refusal := b.text(`document.querySelector("#chat .bad").textContent`)
		for _, want := range []string{"alice was refused (429)", "Limit: daily", "Resets"} {
			if !strings.Contains(refusal, want) {
				t.Errorf("there is no %q in %q", want, refusal)
			}
		}
		at, err := time.Parse(time.RFC3339, b.text(`document.querySelector("#chat .bad time").dateTime`))
		if err != nil || !at.Equal(midnight) {
			t.Errorf("it resets at %v (%v), want %v", at, err, midnight)
		}
		b.until(`document.querySelector("#log .denial")?.textContent.includes("alice")`)
		b.until(`document.querySelector("#numbers").innerText.replace(/\s+/g, " ").includes("Denied 1")`)
		if got := b.text(`document.querySelector("#chat").ariaLive + document.querySelector("#link").role`); got != "politestatus" {
			t.Errorf("what is new is told to screen readers by %q", got)
		}
	})
	b.run(t, "carol is chosen with the arrow keys, and shares with alice", func(t *testing.T) {
		b.keys(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift))
		b.keys(kb.ArrowDown + kb.ArrowDown)
		if got := b.focused(); got != "carol" {
			t.Fatalf("the focus is at %s", got)
		}
		b.keys(kb.Tab)
		for range 3 {
			before := b.text(`document.querySelectorAll("#chat li").length`)
			b.keys("Hello" + kb.Enter)
			b.until(`document.querySelectorAll("#chat li").length === ` + before + ` + 2`)
		}
		b.until(`document.querySelector("#chat li:last-child.bad")?.textContent.includes("Limit: company")`)
		if got := b.text(`document.querySelectorAll("#chat .answer").length`); got != "5" {
			t.Errorf("there are %s answers, want alice's 3 and carol's 2", got)
		}
	})
	b.run(t, "what others do arrives by itself", func(t *testing.T) {
		b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/chat", strings.NewReader("Hello"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(userHeader, "bob")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		b.until(`window.same && /bob was charged \$0\.01/.test(document.querySelector("#log").textContent)`)
		b.until(`/bob of globex\s+daily \(day\)\s+\$0\.010/.test(document.querySelector("#budgets").innerText)`)
	})
	b.run(t, "fits on a phone, light and dark", func(t *testing.T) {
		b.do(chromedp.EmulateViewport(320, 640, chromedp.EmulateScale(2), chromedp.EmulateMobile))
		grounds := map[string]bool{}
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
				t.Fatal(err)
			}
			b.until(`matchMedia("(prefers-color-scheme: ` + scheme + `)").matches`)
			if got := b.text(`innerWidth + " " + document.documentElement.scrollWidth`); got != "320 320" {
				t.Errorf("%s: the window and its content are %s wide", scheme, got)
			}
			if got := b.text(overflowing); got != "" {
				t.Errorf("%s: beyond the edge are %s", scheme, got)
			}
			if got := b.text(pale); got != "" {
				t.Errorf("%s: hard to read are %s", scheme, got)
			}
			grounds[b.text(`getComputedStyle(document.body).backgroundColor`)] = true
		}
		if len(grounds) != 2 {
			t.Errorf("light and dark have the grounds %v", grounds)
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	refusals := 0
	for _, trouble := range b.troubles {
		if strings.Contains(trouble, "429") {
			refusals++
			continue
		}
		t.Errorf("the console says %q", trouble)
	}
	if refusals != 2 { // or else nobody has listened
		t.Errorf("the console tells of %d refusals, want alice's and carol's", refusals)
	}
}

// overflowing are the elements that stand out of the window, or whose content stands
// out of them, horizontally.
const overflowing = `[...document.querySelectorAll("body *")].filter(e => {
	const box = e.getBoundingClientRect();
	return box.width > 0 && (box.left < 0 || box.right > innerWidth || e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1 &&
		!["INPUT", "SPAN", "LABEL"].includes(e.tagName));
}).map(e => e.tagName + "#" + e.id + "." + e.className).join(", ")`

// pale are the elements whose text has less contrast to what is behind it than 4.5,
// as WCAG 2.2 (criterion 1.4.3) wants it.
const pale = `(() => {
	const parts = (color) => color.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
		.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const ground = parts(getComputedStyle(e).backgroundColor);
			if (ground.length === 3 || ground[3] > 0) return ground;
		}
		return [255, 255, 255];
	};
	const texts = [...document.querySelectorAll("body *")].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility());
	if (texts.length < 20) return "too few elements with text: " + texts.length;
	return texts.filter(e => {
		const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05) < 4.5;
	}).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 20)).join(", ");
})()`
