package quota_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// plans are dollars a day: one for everybody, ten on pro, and a hundred for all.
var plans = quota.LimitsConfig{
	Limits: []quota.Limit{
		{Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 1_000_000}},
		{Name: "tabs", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
		{Name: "everybody", Scope: quota.Global, Window: quota.Month, Max: quota.Max{quota.Money: 100_000_000, quota.Calls: 1000}, Missing: quota.Skip},
	},
	Plans: []quota.Plan{{Name: "pro", Limits: []quota.Limit{
		{Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 10_000_000}},
		{Name: "steady", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Tokens: 20_000}, MaxWait: wait(2 * time.Second)},
	}}},
}

// desk is an admin handler, and a log of what it was asked.
type desk struct {
	t       testing.TB
	handler http.Handler
	asked   []quota.AdminAccess
	verdict error
	log     bytes.Buffer
}

func (w *world) desk(change ...func(*quota.AdminConfig)) *desk {
	w.t.Helper()
	d := &desk{t: w.t}
	cfg := quota.AdminConfig{
		Enforcer:  w.Enforcer,
		Authorize: func(_ *http.Request, a quota.AdminAccess) error { d.asked = append(d.asked, a); return d.verdict },
		Logger:    slog.New(slog.NewTextHandler(&d.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if d.handler, err = quota.Admin(cfg); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// ask sends a request; a body makes it a POST.
func (d *desk) ask(target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	if body != "" {
		r = httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w
}

// told is what a desk says about limits.
type statuses struct {
	Subject quota.Subject
	Limits  []standing
}

type standing struct {
	Limit, Scope, Window, Unit, Mode      string
	Max, Burst, Committed, Reserved, Left int64
	ResetsAt                              time.Time
}

// answer reads the answer to a request, which must be one of 200.
func answer[T any](d *desk, target, body string) (v T) {
	d.t.Helper()
	w := d.ask(target, body)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		d.t.Fatalf("%s has status %d, Content-Type %q: %s", target, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		d.t.Fatal(err)
	}
	return v
}

// find finds a limit and unit.
func find(t testing.TB, all []standing, limit, unit string) standing {
	t.Helper()
	for _, s := range all {
		if s.Limit == limit && s.Unit == unit {
			return s
		}
	}
	t.Fatalf("there is no %s of %q in %+v", unit, limit, all)
	return standing{}
}

const alice = "?tenant=acme&team=support&user=alice"

func TestStatusShowsWhatIsSpentAndLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000)) // $0.80
	held := w.reserve(as("alice"), tokens(10_000))
	defer func() { _ = held.Release(context.Background()) }()
	got := answer[statuses](w.desk(), "/status"+alice, "")
	if got.Subject.User != "alice" || got.Subject.Tenant != "acme" || got.Subject.Team != "support" || len(got.Limits) != 4 {
		t.Errorf("got %+v", got)
	}
	st := find(t, got.Limits, "daily", "money")
	if st.Committed != 800_000 || st.Reserved != 40_000 || st.Left != 160_000 || st.Max != 1_000_000 ||
		st.Window != "day" || st.Scope != "user" || st.Mode != "enforce" || st.ResetsAt.Before(time.Now()) {
		t.Errorf("got %+v", st)
	}
	if st := find(t, got.Limits, "everybody", "calls"); st.Committed != 1 || st.Reserved != 1 {
		t.Errorf("got %+v", st)
	}
}

func TestAPreviewSaysWhatAPlanWouldLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000)) // $0.80
	type preview struct {
		As     string
		Known  *bool
		Limits []struct {
			Name, Window, MaxWait string
			Max                   map[string]int64
		}
		Now, Then []standing
	}
	d := w.desk()
	got := answer[preview](d, "/preview"+alice+"&as=pro", "")
	if now, then := find(t, got.Now, "daily", "money"), find(t, got.Then, "daily", "money"); now.Left != 200_000 || then.Left != 9_200_000 || then.Committed != 800_000 {
		t.Errorf("now %+v, then %+v", now, then)
	}
	if find(t, got.Then, "steady", "tokens").Burst != 20_000 {
		t.Errorf("then %+v", got.Then)
	}
	if got.Known == nil || !*got.Known || len(got.Limits) != 4 || got.Limits[3].MaxWait != "2s" || got.Limits[3].Window != "rolling:1m" ||
		got.Limits[0].Max["money"] != 10_000_000 {
		t.Errorf("got %+v", got)
	}
	w.stands(as("alice"), "daily", quota.Money, 800_000, 0) // nothing has changed
	got = answer[preview](d, "/preview"+alice+"&plan=pro&as=plutonium", "")
	if got.Known == nil || *got.Known || find(t, got.Then, "daily", "money").Left != 200_000 || find(t, got.Now, "daily", "money").Left != 9_200_000 {
		t.Errorf("a plan that is not known: %+v", got)
	}
	if got = answer[preview](d, "/preview?tenant=nowhere&user=nobody&as=", ""); !*got.Known || len(got.Limits) != 3 {
		t.Errorf("a hypothetical subject without a plan: %+v", got)
	}
}

func TestLimitsAreThoseInEffect(t *testing.T) {
	t.Parallel()
	type effective struct {
		Limits []struct {
			Name, Scope, Window, Mode, Missing, Failure, Hold string
			Max                                               map[string]int64
			Burst                                             map[string]int64
			Thresholds                                        []int
		}
	}
	got := answer[effective](newWorld(t, plans).desk(), "/limits?plan=pro", "")
	if len(got.Limits) != 4 {
		t.Fatalf("got %+v", got)
	}
	if l := got.Limits[0]; l.Name != "daily" || l.Window != "day" || l.Mode != "enforce" || l.Missing != "deny" || l.Failure != "auto" ||
		l.Hold != "p95" || !slices.Equal(l.Thresholds, []int{80, 100}) {
		t.Errorf("the first is %+v", l)
	}
	if l := got.Limits[1]; l.Window != "" || l.Max["concurrent_turns"] != 2 {
		t.Errorf("the second is %+v", l)
	}
}

func TestTopUpResetAndEraseChangeOneScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000)) // $0.80
	d := w.desk()
	got := answer[statuses](d, "/topup"+alice, `{"scope":"user","unit":"money","amount":300000}`)
	if st := find(t, got.Limits, "daily", "money"); st.Committed != 500_000 || st.Left != 500_000 || len(got.Limits) != 1 {
		t.Errorf("after the top-up: %+v", got)
	}
	w.stands(as("alice"), "everybody", quota.Money, 800_000, 0)
	got = answer[statuses](d, "/reset"+alice, ` {"scope" : "user"} `)
	if st := find(t, got.Limits, "daily", "money"); st.Committed != 0 {
		t.Errorf("after the reset: %+v", got)
	}
	w.stands(as("alice"), "everybody", quota.Calls, 1, 0)
	w.call(as("alice"), tokens(100))
	w.call(as("bob"), tokens(100))
	erased := answer[struct {
		Scope    string
		ErasedAt time.Time
	}](d, "/erase"+alice, `{"scope":"user"}`)
	if erased.Scope != "user" || time.Since(erased.ErasedAt) > time.Minute {
		t.Errorf("erased %+v", erased)
	}
	w.stands(as("alice"), "daily", quota.Money, 0, 0)
	w.stands(as("bob"), "daily", quota.Money, 400, 0)
	for _, want := range []string{"action=topup", "subject.user=alice", "unit=money", "amount=300000", "action=reset", "action=erase"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &d.log)
		}
	}
}

func TestNothingIsDoneOrToldWithoutTheAuthorizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000))
	d := w.desk()
	requests := []struct {
		target, body string
		access       quota.AdminAccess
	}{
		{"/status" + alice, "", quota.AdminAccess{Action: quota.AdminStatus}},
		{"/limits" + alice, "", quota.AdminAccess{Action: quota.AdminLimits}},
		{"/preview" + alice + "&as=pro", "", quota.AdminAccess{Action: quota.AdminPreview}},
		{"/topup" + alice, `{"scope":"user","unit":"money","amount":1}`, quota.AdminAccess{Action: quota.AdminTopUp, Scope: quota.User}},
		{"/reset" + alice, `{"scope":"global"}`, quota.AdminAccess{Action: quota.AdminReset, Scope: quota.Global}},
		{"/erase" + alice, `{"scope":"tenant"}`, quota.AdminAccess{Action: quota.AdminErase, Scope: quota.Tenant}},
		{"/openapi.json", "", quota.AdminAccess{Action: quota.AdminOpenAPI}},
	}
	for _, tt := range requests {
		d.asked = nil
		d.verdict = errors.New("the secret reason")
		got := d.ask(tt.target, tt.body)
		if p := problemOf(t, got); p.Status != 403 || strings.Contains(got.Body.String(), "secret") || strings.Contains(got.Body.String(), "acme") {
			t.Errorf("%s is refused by %s", tt.target, got.Body)
		}
		if tt.access.Action != quota.AdminOpenAPI {
			tt.access.Subject = quota.Subject{Tenant: "acme", Team: "support", User: "alice"}
		}
		if len(d.asked) != 1 || d.asked[0].Action != tt.access.Action || d.asked[0].Scope != tt.access.Scope || d.asked[0].Subject.User != tt.access.Subject.User {
			t.Errorf("%s was asked about as %+v", tt.target, d.asked)
		}
		d.verdict = quota.ErrUnauthenticated
		if got := d.ask(tt.target, tt.body); got.Code != 401 || got.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: status %d, challenge %q", tt.target, got.Code, got.Header().Get("WWW-Authenticate"))
		}
	}
	// Who may do nothing is not even told what is wrong with the request.
	if got := d.ask("/reset"+alice, `{"scope":`); got.Code != 401 || d.asked[len(d.asked)-1].Subject.User != "" {
		t.Errorf("a request that is not well-formed: status %d, asked about as %+v", got.Code, d.asked[len(d.asked)-1])
	}
	w.stands(as("alice"), "daily", quota.Money, 800_000, 0)
	w.stands(as("alice"), "everybody", quota.Money, 800_000, 0)
}

func TestAScopeThatIsNotTheDesksIsNeitherShownNorChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000))
	d := w.desk(func(c *quota.AdminConfig) { c.Scopes = []quota.Scope{quota.Tenant, quota.User} })
	for _, target := range []string{"/status" + alice, "/limits" + alice, "/preview" + alice + "&as=pro"} {
		if got := d.ask(target, ""); got.Code != 200 || strings.Contains(got.Body.String(), "everybody") || !strings.Contains(got.Body.String(), "daily") {
			t.Errorf("%s: status %d, %s", target, got.Code, got.Body)
		}
	}
	for target, body := range map[string]string{
		"/reset": `{"scope":"global"}`, "/erase": `{"scope":"global"}`, "/topup": `{"scope":"global","unit":"money","amount":1}`,
	} {
		if got := d.ask(target+alice, body); got.Code != 403 {
			t.Errorf("%s: status %d, %s", target, got.Code, got.Body)
		}
	}
	w.stands(as("alice"), "everybody", quota.Money, 800_000, 0)
}

func TestARequestThatMeansNothingIsRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000))
	d := w.desk()
	const topUp = "/topup" + alice
	tests := []struct {
		target, body string
		status       int
		detail       string
	}{
		{"/status?tenant=acme&usr=alice", "", 400, `parameter "usr"`},
		{"/status?user=alice&user=bob", "", 400, `"user" comes 2 times`},
		{"/status?user=", "", 400, `"user" is empty`},
		{"/status?user=%zz", "", 400, "parameters"},
		{"/status?user=a%00b", "", 400, "user"},
		{"/status?user=" + strings.Repeat("x", 129), "", 400, "129 bytes"},
		{"/status?other[planet]=mars", "", 400, "other[planet]"},
		{"/status?other[]=mars", "", 400, "other[]"},
		{"/status?other[user]=mars", "", 400, "built-in"},
		{"/status" + alice + "&as=pro", "", 400, `parameter "as" is not known`},
		{"/preview" + alice, "", 400, `parameter "as" is missing`},
		{"/preview?as=%07", "", 400, "control character"},
		{"/openapi.json?user=alice", "", 400, `parameter "user"`},
		{topUp, `{"scope":"user","unit":"money"}`, 400, `member "amount" is missing`},
		{topUp, `{"scope":"user","unit":"money","amount":1,"note":"x"}`, 400, `member "note" is not known`},
		{topUp, `{"scope":"user","unit":"money","Amount":1}`, 400, `member "Amount" is not known`},
		{topUp, `{"scope":"user","unit":"money","amount":1,"amount":2}`, 400, `member "amount" comes twice`},
		{topUp, `{"scope":"user","unit":"money","amount":1.5}`, 400, `member "amount" is 1.5`},
		{topUp, `{"scope":"user","unit":"money","amount":"1"}`, 400, `member "amount"`},
		{topUp, `{"scope":"user","unit":"money","amount":null}`, 400, `member "amount" is null`},
		{topUp, `{"scope":"user","unit":"money","amount":0}`, 400, "amount is 0"},
		{topUp, `{"scope":"user","unit":"money","amount":-5}`, 400, "amount is -5"},
		{topUp, `{"scope":"user","unit":"money","amount":9007199254740992}`, 400, "amount is 9007199254740992"},
		{topUp, `{"scope":"user","unit":"money","amount":99999999999999999999}`, 400, `member "amount"`},
		{topUp, `{"scope":"user","unit":"dollars","amount":1}`, 400, `member "unit"`},
		{topUp, `{"scope":"user","unit":"concurrent_turns","amount":1}`, 400, "concurrent_turns"},
		{topUp, `{"scope":"planet","unit":"money","amount":1}`, 400, `scope "planet"`},
		{topUp, `{"scope":"session","unit":"money","amount":1}`, 400, `no id of the scope "session"`},
		{topUp, `{"scope":"user","unit":"tokens","amount":1}`, 404, "user"},
		{"/reset" + alice, `{"scope":"team"}`, 404, "team"},
		{"/erase" + alice, `{"scope":"global"}`, 400, `scope "global" is everybody`},
		{"/reset" + alice, `{"scope":7}`, 400, `member "scope" is 7`},
		{"/reset" + alice, `{"scope":null}`, 400, `member "scope" is null`},
		{"/reset" + alice, `["user"]`, 400, "JSON object"},
		{"/reset" + alice, `{"scope":"user"}{}`, 400, "one JSON object"},
		{"/reset" + alice, `{"scope":"user"} x`, 400, "one JSON object"},
		{"/reset" + alice, `{"scope":"user"`, 400, "one JSON object"},
		{"/reset" + alice, `{"scope":"user",}`, 400, "one JSON object"},
		{"/reset" + alice, " ", 400, "one JSON object"},
		{"/reset" + alice, `{"scope":"` + strings.Repeat("x", 17<<10) + `"}`, 413, "16384"},
		{"/reset" + alice, `{"scope":"user"}` + strings.Repeat(" ", 17<<10), 413, "16384"},
		{"/nothing", "", 404, ""},
		{"/status/", "", 404, ""},
	}
	for _, tt := range tests {
		got := d.ask(tt.target, tt.body)
		if got.Code != tt.status {
			t.Errorf("%s %.60s: status %d, want %d: %s", tt.target, tt.body, got.Code, tt.status, got.Body)
			continue
		}
		if p := problemOf(t, got); !strings.Contains(p.Detail, tt.detail) || len(p.Detail) > 250 {
			t.Errorf("%s %.60s: detail %q, want one with %q", tt.target, tt.body, p.Detail, tt.detail)
		}
	}
	w.stands(as("alice"), "daily", quota.Money, 800_000, 0)
	w.stands(as("alice"), "everybody", quota.Money, 800_000, 0)
}

func TestAFormOfAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plans)
	w.call(as("alice"), tokens(200_000))
	d := w.desk()
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"} {
		r := httptest.NewRequest(http.MethodPost, "/reset"+alice, strings.NewReader(`{"scope":"user"}`))
		if media != "" {
			r.Header.Set("Content-Type", media)
		}
		got := httptest.NewRecorder()
		d.handler.ServeHTTP(got, r)
		if got.Code != 415 {
			t.Errorf("Content-Type %q: status %d", media, got.Code)
		}
	}
	for _, tt := range []struct{ method, target, allow string }{{"GET", "/reset", "POST"}, {"DELETE", "/status", "GET"}} {
		got := httptest.NewRecorder()
		d.handler.ServeHTTP(got, httptest.NewRequest(tt.method, tt.target+alice, nil))
		if got.Code != 405 || got.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: status %d, Allow %q", tt.method, tt.target, got.Code, got.Header().Get("Allow"))
		}
	}
	w.stands(as("alice"), "daily", quota.Money, 800_000, 0)
}

func TestAnAdminIsToldThatTheLedgerCannotBeReached(t *testing.T) {
	t.Parallel()
	d := newWorld(t, plans, func(c *quota.Config) { c.Ledger = mute{c.Ledger} }).desk()
	for target, body := range map[string]string{
		"/status": "", "/reset": `{"scope":"user"}`, "/topup": `{"scope":"user","unit":"money","amount":1}`, "/erase": `{"scope":"user"}`,
	} {
		got := d.ask(target+alice, body)
		if got.Code != 503 || got.Header().Get("Retry-After") != "1" || strings.Contains(got.Body.String(), "10.0.0.7") {
			t.Errorf("%s: status %d, Retry-After %q: %s", target, got.Code, got.Header().Get("Retry-After"), got.Body)
		}
	}
	if !strings.Contains(d.log.String(), "not done") {
		t.Errorf("the log has %s", &d.log)
	}
}

// mute is a ledger that no change reaches.
type mute struct{ quota.Ledger }

var errMute = errors.Join(quota.ErrUnavailable, errors.New("dial tcp 10.0.0.7:6379"))

func (mute) Status(context.Context, string, ...quota.Entry) ([]quota.Status, error) {
	return nil, errMute
}
func (mute) TopUp(context.Context, string, quota.Entry, int64) (quota.Status, error) {
	return quota.Status{}, errMute
}
func (mute) Reset(context.Context, string, quota.Entry) (quota.Status, error) {
	return quota.Status{}, errMute
}
func (mute) Erase(context.Context, string, string) error { return errMute }

func TestAnAdminIsToldThatLimitsCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := quota.New(quota.Config{
		Ledger: memory, Logger: quietLog,
		Limits: quota.LimitResolverFunc(func(context.Context, quota.Subject) ([]quota.Limit, error) { return nil, io.ErrUnexpectedEOF }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	d := (&world{Enforcer: e, t: t}).desk()
	for target, body := range map[string]string{"/status": "", "/limits": "", "/reset": `{"scope":"user"}`} {
		if got := d.ask(target+alice, body); got.Code != 503 {
			t.Errorf("%s: status %d: %s", target, got.Code, got.Body)
		}
	}
}

func TestAnAdminHandlerNeedsAnAuthorizer(t *testing.T) {
	t.Parallel()
	h, err := quota.Admin(quota.AdminConfig{Challenge: "a\nb"})
	if h != nil || err == nil {
		t.Fatal("there is a handler")
	}
	for _, want := range []string{"Authorize is nil", "Enforcer is nil", "Challenge"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	_, err = quota.Admin(quota.AdminConfig{
		Enforcer: newWorld(t, plans).Enforcer, Authorize: func(*http.Request, quota.AdminAccess) error { return nil }, Scopes: []quota.Scope{"planet"},
	})
	if err == nil || !strings.Contains(err.Error(), `"planet"`) {
		t.Errorf("an unknown scope: %v", err)
	}
}

// Whatever the body, it is refused or taken for what any reader of JSON takes it for.
func FuzzAdminBody(f *testing.F) {
	for _, s := range []string{
		`{"scope":"user","unit":"money","amount":1}`, `{"scope":"user"}`, `{"scope":"user","scope":"tenant","unit":"money","amount":1}`,
		`{"amount":1e2,"unit":"money","scope":"user"}`, `{"\u0073cope":"user","unit":"money","amount":7}`, `[]`, `{`, "\ufeff{}", `{"amount":[1]}`, "null",
	} {
		f.Add(s)
	}
	w := newWorld(f, plans)
	d := w.desk()
	f.Fuzz(func(t *testing.T, body string) {
		if body == "" {
			return
		}
		d.asked, d.verdict = nil, nil
		d.log.Reset()
		got := d.ask("/topup"+alice, body)
		var want struct {
			Scope, Unit string
			Amount      int64
		}
		err := json.Unmarshal([]byte(body), &want)
		switch {
		case got.Code == 200:
			if err != nil || len(d.asked) != 1 || string(d.asked[0].Scope) != want.Scope || want.Amount < 1 {
				t.Errorf("%q is taken for %+v, others read %+v (%v)", body, d.asked, want, err)
			}
		case got.Code < 400 || got.Code >= 500:
			t.Errorf("%q has status %d: %s", body, got.Code, got.Body)
		}
	})
}
