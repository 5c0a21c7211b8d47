package main

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestAliceGetsThreeAnswersADayBobIsServedAndCarolSharesWithAlice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		served := func(user string) {
			t.Helper()
			got := w.chat(user, "Where is my parcel?")
			if got.status != http.StatusOK || !strings.Contains(got.body, "parcel") {
				t.Fatalf("%s got %d: %s", user, got.status, got.body)
			}
		}
		refused := func(user, limit string, scope quota.Scope) {
			t.Helper()
			got := w.chat(user, "Where is my parcel?")
			now := time.Now().UTC()
			midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
			if got.status != http.StatusTooManyRequests {
				t.Fatalf("%s got %d: %s", user, got.status, got.body)
			}
			p := got.problem(t)
			if len(p.Violated) != 1 || p.Violated[0] != limit || p.Scope != scope || p.Reason != quota.ReasonExhausted {
				t.Errorf("%s is refused by %q of the %q (%s), want %q of the %q", user, p.Violated, p.Scope, p.Reason, limit, scope)
			}
			if p.Stage != quota.Admission.String() {
				t.Errorf("%s is refused at the stage %q, where work was done already", user, p.Stage)
			}
			if !p.ResetsAt.Equal(midnight) {
				t.Errorf("%s's limit resets at %v, want %v", user, p.ResetsAt, midnight)
			}
			wait, err := strconv.Atoi(got.header.Get("Retry-After"))
			if at := now.Add(time.Duration(wait) * time.Second); err != nil || at.Before(midnight) || at.Sub(midnight) >= time.Second {
				t.Errorf("Retry-After %q leads to %v, want %v", got.header.Get("Retry-After"), at, midnight)
			}
		}
		for range 3 {
			served("alice")
		}
		refused("alice", "daily", quota.User)
		served("bob")
		served("carol")
		served("carol")
		refused("carol", "company", quota.Tenant)

		s := w.now()
		if want := (turns{Answered: 6, Denied: 2}); s.Turns != want {
			t.Errorf("turns are %+v, want %+v", s.Turns, want)
		}
		alice, carol := s.budget(t, "alice", "daily").Used, s.budget(t, "carol", "daily").Used
		if company := s.budget(t, "acme", "company").Used; alice+carol != company {
			t.Errorf("alice and carol have used %d and %d, their company %d", alice, carol, company)
		}
		if got := s.budget(t, "globex", "company").Used; got != s.budget(t, "bob", "daily").Used {
			t.Errorf("bob's company has used %d", got)
		}

		time.Sleep(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)))
		served("alice") // it is another day
	})
}

// The amounts are made so that the story is the same whatever people write.
func TestHowManyAnswersThereAreDoesNotDependOnTheMessage(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]string{"shortest": "?", "longest": strings.Repeat("ü", maxMessage)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, memory)
				count := func(user string) (served int) {
					for w.chat(user, message).status == http.StatusOK {
						served++
						time.Sleep(3 * time.Second) // the pace of a person
					}
					return served
				}
				if got := count("alice"); got != 3 {
					t.Errorf("alice got %d answers, want 3", got)
				}
				if got := count("carol"); got != 2 {
					t.Errorf("carol got %d answers, want 2", got)
				}
				if got := count("bob"); got != 3 {
					t.Errorf("bob got %d answers, want 3", got)
				}
			})
		})
	}
}

func TestOfTwoAtOnceOnlyOneHasTheLastAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		w.chat("alice", "one")
		w.chat("alice", "two")
		var both sync.WaitGroup
		var answers [2]answer
		for i := range answers {
			both.Go(func() { answers[i] = w.chat("alice", "three") })
		}
		both.Wait()
		if a, b := answers[0].status, answers[1].status; a+b != http.StatusOK+http.StatusTooManyRequests {
			t.Errorf("got %d and %d, want 200 and 429", a, b)
		}
		if daily := w.now().budget(t, "alice", "daily"); daily.Used > daily.Max || daily.Reserved != 0 {
			t.Errorf("alice's day is at %+v", daily)
		}
	})
}

// What is left may be enough for a short message, and not for this one.
func TestWhatIsDeniedInTheMiddleOfATurnIsA429AsWell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := beginWith(t, memory, bytes.Replace(limitsFile, []byte(`"0.035"`), []byte(`"0.0204"`), 1))
		if got := w.chat("alice", "hello"); got.status != http.StatusOK {
			t.Fatalf("got %d: %s", got.status, got.body)
		}
		before := w.now().budget(t, "alice", "daily")
		got := w.chat("alice", strings.Repeat("a", maxMessage))
		if p := got.problem(t); got.status != http.StatusTooManyRequests || p.Stage != quota.MidTurn.String() ||
			len(p.Violated) != 1 || p.Violated[0] != "daily" || got.header.Get("Retry-After") == "" {
			t.Errorf("got %d, %v: %s", got.status, got.header, got.body)
		}
		s := w.now()
		if after := s.budget(t, "alice", "daily"); after != before {
			t.Errorf("before it alice's day is at %+v, after it at %+v", before, after)
		}
		if want := (turns{Answered: 1, Denied: 1}); s.Turns != want {
			t.Errorf("turns are %+v, want %+v", s.Turns, want)
		}
		if got := w.chat("alice", "hello"); got.status != http.StatusOK {
			t.Errorf("a shorter message got %d: %s", got.status, got.body)
		}
	})
}

func TestTwoTurnsOfAUserAreUnderWayAtATimeAndNotThree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for i := range 3 { // under way at the same time: two are let in
			go w.chat("carol", "hello")
			synctest.Wait()
			if got := w.now().Turns; got.UnderWay != int64(min(i+1, 2)) || got.Denied != int64(max(i-1, 0)) {
				t.Errorf("after %d messages turns are %+v", i+1, got)
			}
		}
		time.Sleep(10 * time.Second)
		if got := w.now().Turns; got != (turns{Answered: 2, Denied: 1}) {
			t.Errorf("at the end turns are %+v", got)
		}
	})
}

func TestNobodyIsServedWithoutAnAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for name, headers := range map[string][]string{
			"no header":          nil,
			"an unknown name":    {userHeader, "dave"},
			"another case":       {userHeader, "Alice"},
			"two names":          {userHeader, "alice", userHeader, "bob"},
			"two names in one":   {userHeader, "alice, bob"},
			"a company, no name": {"X-Tenant-Id", "acme"},
		} {
			got := w.do("POST", "/chat", "hello", headers...)
			if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: got %d: %s", name, got.status, got.body)
			}
		}
		if got := w.now(); got.Turns != (turns{}) || got.budget(t, "everybody", "everybody").Used != 0 {
			t.Errorf("something was done: %+v", got.Turns)
		}
		// A plan, or a company, that a client claims is not listened to.
		for range 3 {
			w.do("POST", "/chat", "hello", userHeader, "alice", "X-Plan", "pro", "X-Tenant-Id", "globex")
		}
		if got := w.do("POST", "/chat", "hello", userHeader, "alice", "X-Plan", "pro", "X-Tenant-Id", "globex"); got.status != 429 {
			t.Errorf("alice, who claims a plan, got %d", got.status)
		}
	})
}

func TestWhatIsNoMessageCountsAsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for name, c := range map[string]struct {
			method, body string
			status       int
		}{
			"nothing":            {"POST", "", http.StatusBadRequest},
			"spaces":             {"POST", " \n\t", http.StatusBadRequest},
			"no UTF-8":           {"POST", "caf\xe9", http.StatusBadRequest},
			"too many letters":   {"POST", strings.Repeat("a", maxMessage+1), http.StatusRequestEntityTooLarge},
			"too many bytes":     {"POST", strings.Repeat("a", maxBody+1), http.StatusRequestEntityTooLarge},
			"another method":     {"GET", "", http.StatusMethodNotAllowed},
			"and another method": {"PUT", "hello", http.StatusMethodNotAllowed},
		} {
			if got := w.do(c.method, "/chat", c.body, userHeader, "alice"); got.status != c.status {
				t.Errorf("%s: got %d, want %d", name, got.status, c.status)
			}
		}
		if got := w.now().budget(t, "alice", "pace").Used; got != 0 {
			t.Errorf("%d turns were counted", got)
		}
		if got := w.chat("alice", strings.Repeat("😀", maxMessage)); got.status != http.StatusOK {
			t.Errorf("a message of the greatest length got %d: %s", got.status, got.body)
		}
	})
}

func TestOtherSitesCannotWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		got := w.do("POST", "/chat", "hello", userHeader, "alice", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
		if got.status != http.StatusForbidden {
			t.Errorf("got %d", got.status)
		}
	})
}

// What the provider refuses is never told as the customer's quota, and costs nothing.
func TestARefusalOfTheProviderIsNotTheCustomersQuota(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, func(http.Handler) (hosted, error) {
					return memory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(status)
						_, _ = w.Write([]byte(`{"error":{"code":` + strconv.Itoa(status) + `,"message":"internal host 10.0.0.1"}}`))
					}))
				})
				got := w.chat("alice", "my secret question")
				if got.status != http.StatusBadGateway && got.status != http.StatusServiceUnavailable {
					t.Errorf("got %d: %s", got.status, got.body)
				}
				if strings.Contains(got.body, "10.0.0.1") {
					t.Errorf("the client is told %s", got.body)
				}
				s := w.now()
				if daily := s.budget(t, "alice", "daily"); daily.Used != 0 || daily.Reserved != 0 {
					t.Errorf("alice's day is at %+v", daily)
				}
				if s.Turns != (turns{Failed: 1}) {
					t.Errorf("turns are %+v", s.Turns)
				}
				if strings.Contains(w.log.String(), "my secret question") {
					t.Error("the message is in the log")
				}
			})
		})
	}
}

func TestSupportCanGiveAnAnswerBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for range 3 {
			w.chat("alice", "hello")
		}
		const path = "/admin/topup?tenant=acme&user=alice"
		const body = `{"scope":"user","unit":"money","amount":10500}`
		for _, token := range []string{"", "Bearer ", "Bearer demo", testToken} {
			if got := w.do("POST", path, body, "Content-Type", "application/json", "Authorization", token); got.status != http.StatusUnauthorized {
				t.Errorf("with %q got %d", token, got.status)
			}
		}
		if got := w.chat("alice", "hello"); got.status != http.StatusTooManyRequests {
			t.Fatalf("before, alice got %d", got.status)
		}
		if got := w.do("POST", path, body, "Content-Type", "application/json", "Authorization", "Bearer "+testToken); got.status != http.StatusOK {
			t.Fatalf("the top-up got %d: %s", got.status, got.body)
		}
		if got := w.chat("alice", "hello"); got.status != http.StatusOK {
			t.Errorf("after it, alice got %d: %s", got.status, got.body)
		}
	})
}

func TestMetricsTellDenialsAndNobodysName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for range 4 {
			w.chat("alice", "hello")
		}
		got := w.do("GET", "/metrics", "")
		for _, want := range []string{
			`headgate_quota_denials_total{limit="daily",mode="enforce",reason="exhausted",stage="admission",unit="money"} 1`,
			`headgate_quota_calls_total{kind="call",outcome="charged"} 3`,
			"headgate_slots_limit", "headgate_quota_charged_dollars_total",
		} {
			if !strings.Contains(got.body, want) {
				t.Errorf("there is no %s", want)
			}
		}
		for _, name := range []string{"alice", "acme"} {
			if strings.Contains(got.body, name) {
				t.Errorf("%s is in the metrics", name)
			}
		}
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		if got := w.do("GET", "/healthz", ""); got.status != http.StatusOK || got.body != "ok\n" {
			t.Errorf("got %d: %s", got.status, got.body)
		}
	})
}
