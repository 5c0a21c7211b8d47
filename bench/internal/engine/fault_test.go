package engine

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var testCatalog = Catalog{
	{Name: "429", Options: []string{"retry"}, Refuses: true},
	{Name: "503"},
	{Name: "cut", Options: []string{"after", "code"}},
	{Name: "hang", Options: []string{"after", "for"}},
	{Name: "slow", Options: []string{"x"}},
}

func TestFaultsAreReadFromTheirTextForm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want Fault // without kind
	}{
		{"503", Fault{After: -1}},
		{"503@p=0.01", Fault{P: 0.01, After: -1}},
		{"503@p=1", Fault{P: 1, After: -1}},
		{"hang@n=7", Fault{N: 7, After: -1}},
		{"429@10s-20s", Fault{From: 10 * time.Second, To: 20 * time.Second, After: -1}},
		{"429@-20s", Fault{To: 20 * time.Second, After: -1}},
		{"429@10s-", Fault{From: 10 * time.Second, To: forever, After: -1}},
		{"429@1m-2m,p=0.5,retry=30s", Fault{From: time.Minute, To: 2 * time.Minute, P: 0.5, Retry: 30 * time.Second, After: -1}},
		{"cut@every=5,after=0,code=500", Fault{Every: 5, After: 0, Code: 500}},
		{"hang@for=1.5s,after=2", Fault{For: 1500 * time.Millisecond, After: 2}},
		{"slow@x=2.5", Fault{X: 2.5, After: -1}},
	}
	for _, tt := range tests {
		got, err := testCatalog.Parse(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if kind, _, _ := strings.Cut(tt.text, "@"); got.Kind.Name != kind {
			t.Errorf("%s: kind %q, want %q", tt.text, got.Kind.Name, kind)
		}
		got.Kind = Kind{}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.text, got, tt.want)
		}
	}
}

func TestAWrongFaultIsRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"", `unknown kind ""`},
		{"504@p=0.1", `unknown kind "504": must be one of 429, 503, cut, hang, slow`},
		{"503@", "name=value or an interval"},
		{"503@soon", "name=value or an interval"},
		{"503@p=0", `"p=0": must be a number above 0, at most 1`},
		{"503@p=2", `"p=2"`},
		{"503@p=NaN", `"p=NaN"`},
		{"503@p=", `"p="`},
		{"503@n=0", `"n=0": must be a whole number, at least 1`},
		{"503@n=1.5", `"n=1.5"`},
		{"503@every=-1", `"every=-1"`},
		{"503@20s-10s", `"20s-10s": must end after it begins`},
		{"503@10s-10s", `"10s-10s"`},
		{"503@-5s-10s", `"-5s-10s"`},
		{"503@10-20s", "beginning of the interval"},
		{"503@10s-20", "end of the interval"},
		{"503@p=0.1,p=0.2", `"p=0.2": given twice`},
		{"503@1s-2s,3s-4s", `"3s-4s": given twice`},
		{"503@after=1", `"after=1": 503 takes no after`},
		{"503@colour=red", `"colour=red": must be n=, every=, p=, an interval`},
		{"cut@colour=red", "after=, code="},
		{"cut@after=-1", `"after=-1"`},
		{"cut@code=200", `"code=200": must be a whole number from 400 to 599`},
		{"hang@for=0s", `"for=0s": must be a duration above 0`},
		{"429@retry=soon", `"retry=soon"`},
		{"slow@x=0", `"x=0"`},
		{"slow@x=Inf", `"x=Inf"`},
	}
	for _, tt := range tests {
		_, err := testCatalog.Parse(tt.text)
		if err == nil {
			t.Errorf("%q was accepted", tt.text)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"`+tt.text+`"`) {
			t.Errorf("%q: error %q does not say %q and the text", tt.text, err, tt.want)
		}
	}
}

func TestAFaultBefallsTheCallsThatMeetAllConditions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text    string
		n       int64
		elapsed time.Duration
		u       float64
		want    bool
	}{
		{"503", 1, 0, 0.99, true},
		{"503@n=7", 7, 0, 0.99, true},
		{"503@n=7", 8, 0, 0, false},
		{"503@every=5", 10, 0, 0, true},
		{"503@every=5", 11, 0, 0, false},
		{"503@p=0.1", 1, 0, 0.0999, true},
		{"503@p=0.1", 1, 0, 0.1, false},
		{"503@10s-20s", 1, 10*time.Second - 1, 0, false},
		{"503@10s-20s", 1, 10 * time.Second, 0, true},
		{"503@10s-20s", 1, 20*time.Second - 1, 0, true},
		{"503@10s-20s", 1, 20 * time.Second, 0, false},
		{"503@10s-", 1, time.Hour, 0, true},
		{"503@10s-20s,p=0.5", 1, 15 * time.Second, 0.7, false},
		{"503@10s-20s,p=0.5", 1, 25 * time.Second, 0.2, false},
		{"503@10s-20s,p=0.5", 1, 15 * time.Second, 0.2, true},
	}
	for _, tt := range tests {
		f, err := testCatalog.Parse(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.befalls(tt.n, tt.elapsed, tt.u); got != tt.want {
			t.Errorf("%s befalls call %d at %v with u=%v: %v, want %v", tt.text, tt.n, tt.elapsed, tt.u, got, tt.want)
		}
	}
}

func TestSpeedShortensAFaultButNeverRemovesACondition(t *testing.T) {
	t.Parallel()
	f, err := testCatalog.Parse("hang@10s-20s,for=4s")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.shorten(20); got.From != 500*time.Millisecond || got.To != time.Second || got.For != 200*time.Millisecond {
		t.Errorf("at speed 20: %+v", got)
	}
	f, err = testCatalog.Parse("hang@-1ns,for=1ns")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.shorten(1e6); got.To != 1 || got.For != 1 {
		t.Errorf("a nanosecond at speed 1e6 became %+v; its conditions are gone", got)
	}
	if got := (Fault{To: forever}).shorten(20); got.To != forever {
		t.Errorf("an open interval ends at %v", got.To)
	}
}

func FuzzFaultTextParsesToWhatItPrints(f *testing.F) {
	for _, seed := range []string{
		"503", "503@p=0.01", "hang@n=7", "429@10s-20s", "429@-20s", "429@10s-,retry=1h", "cut@every=5,after=2,code=429",
		"slow@x=1e3", "503@", "@", "503@p=1e-320", "429@1ns-2562047h47m16.854775807s",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := testCatalog.Parse(text)
		if err != nil {
			if !strings.Contains(err.Error(), "fault") {
				t.Errorf("error %q does not say that it is about a fault", err)
			}
			return
		}
		again, err := testCatalog.Parse(fault.String())
		if err != nil {
			t.Fatalf("%q prints as %q, which does not parse: %v", text, fault, err)
		}
		if !reflect.DeepEqual(fault, again) {
			t.Errorf("%q prints as %q, which is another fault: %+v and %+v", text, fault, fault, again)
		}
	})
}
