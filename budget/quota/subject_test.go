package quota_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestSubjectValidateNamesEachBadID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", quota.MaxID+1)
	for _, c := range []struct {
		s    quota.Subject
		want []string // parts of the error; none if it is valid
	}{
		{quota.Subject{}, nil},
		{quota.Subject{User: "alice", Team: "ops", Tenant: "acme", Session: "s1", Plan: "pro", Other: map[quota.Scope]string{"project": "p1"}}, nil},
		{quota.Subject{User: strings.Repeat("x", quota.MaxID)}, nil},
		{quota.Subject{User: " a:b/{c}% Ω 😀 "}, nil},
		{quota.Subject{User: long}, []string{"subject: user", "has 129 bytes, above 128"}},
		{quota.Subject{User: strings.Repeat("x", 10_000)}, []string{"user", "has 10000 bytes"}},
		{quota.Subject{User: strings.Repeat("é", 65)}, []string{"user", "has 130 bytes"}},
		{quota.Subject{Team: "a\nb"}, []string{`team "a\nb" has the control character U+000A`}},
		{quota.Subject{Tenant: "a\x00"}, []string{`tenant "a\x00"`, "U+0000"}},
		{quota.Subject{Session: "\x7f"}, []string{"session", "U+007F"}},
		{quota.Subject{Session: "a\u0085b"}, []string{"session", "U+0085"}},
		{quota.Subject{Session: "a\u2028b"}, []string{"session", "U+2028"}},
		{quota.Subject{User: "a\xffb"}, []string{`user "a\xffb" is not UTF-8`}},
		{quota.Subject{Plan: long}, []string{"plan"}},
		{quota.Subject{User: long, Plan: "a\tb"}, []string{"user", `plan "a\tb"`}},
		{quota.Subject{Other: map[quota.Scope]string{"project": "a\rb"}}, []string{`project "a\rb"`}},
		{quota.Subject{Other: map[quota.Scope]string{"Project": "p"}}, []string{`scope "Project"`}},
		{quota.Subject{Other: map[quota.Scope]string{"": "p"}}, []string{"a scope has no name"}},
		{quota.Subject{Other: map[quota.Scope]string{quota.Scope(strings.Repeat("a", 33)): "p"}}, []string{"a name of 33 bytes, above 32"}},
		{quota.Subject{Other: map[quota.Scope]string{quota.User: "bob"}}, []string{`Other has an id of "user"`}},
		{quota.Subject{Other: map[quota.Scope]string{quota.Global: "x"}}, []string{`Other has an id of "global"`}},
		{quota.Subject{Other: map[quota.Scope]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": "", "h": "", "i": ""}}, []string{"Other has 9 ids, above 8"}},
	} {
		err := c.s.Validate()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%.60v: %v, want %v", c.s, err, c.want)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%.60v: %v, want %s in it", c.s, err, want)
			}
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.60v: the error has %d bytes", c.s, len(err.Error()))
		}
	}
}

func TestSubjectSurvivesDerivedContexts(t *testing.T) {
	t.Parallel()
	other := map[quota.Scope]string{"project": "p1"}
	ctx := quota.WithSubject(t.Context(), quota.Subject{User: "alice", Other: other})
	other["project"] = "p2" // the caller's map is not the subject's
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, ok := quota.SubjectFrom(context.WithoutCancel(ctx))
	if !ok || s.User != "alice" || s.ID("project") != "p1" {
		t.Errorf("the subject is %v, %v", s, ok)
	}
	s, ok = quota.SubjectFrom(quota.WithSubject(ctx, quota.Subject{Tenant: "acme"}))
	if !ok || s.User != "" || s.Tenant != "acme" {
		t.Errorf("the inner subject is %v, %v; want it alone", s, ok)
	}
	if s, ok := quota.SubjectFrom(t.Context()); ok || !s.Nobody() {
		t.Errorf("a context without a subject has %v, %v", s, ok)
	}
}

func TestNobodyHasNoID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    quota.Subject
		want bool
	}{
		{quota.Subject{}, true},
		{quota.Subject{Plan: "pro"}, true},
		{quota.Subject{Other: map[quota.Scope]string{"project": ""}}, true},
		{quota.Subject{Other: map[quota.Scope]string{"project": "p"}}, false},
		{quota.Subject{User: "u"}, false},
		{quota.Subject{Team: "t"}, false},
		{quota.Subject{Tenant: "t"}, false},
		{quota.Subject{Session: "s"}, false},
	} {
		if got := c.s.Nobody(); got != c.want {
			t.Errorf("%v: %v, want %v", c.s, got, c.want)
		}
	}
}

func TestSubjectInLogsShowsTheIDsThatAreThere(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 {
			return slog.Attr{} // only the subject
		}
		return a
	}}))
	log.Info("", "subject", quota.Subject{User: "alice", Tenant: "acme", Plan: "pro", Other: map[quota.Scope]string{"project": "p1", "area": "a1"}})
	if got, want := strings.TrimSpace(b.String()), "subject.tenant=acme subject.user=alice subject.area=a1 subject.project=p1 subject.plan=pro"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
