package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
)

// of is a call of a user that counted for the user and the tenant.
func of(tenant, user string, d time.Duration) audit.Record {
	r := at(d, "call-"+tenant+"-"+user)
	r.Subject = quota.Subject{Tenant: tenant, Team: "support", User: user, Session: "s-" + user}
	r.Turn = "turn-" + user
	r.Charged = audit.Amounts{Tokens: 10}
	key := "tenant=" + tenant
	r.Counted = []audit.Counted{
		{Limit: "mine", Scope: quota.User, Key: key + "/user=" + user, Unit: "tokens", Amount: 10},
		{Limit: "ours", Scope: quota.Tenant, Key: key, Unit: "tokens", Amount: 10},
	}
	return r
}

func text(t testing.TB, dir string) string {
	t.Helper()
	var all []byte
	for _, name := range files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

func TestErasingLeavesNothingOfASubjectAndEverythingOfOthers(t *testing.T) {
	t.Parallel()
	threshold := audit.Record{V: audit.Version, Kind: quota.KindThreshold, At: noon, Key: "tenant=acme/user=alice", Subject: quota.Subject{Tenant: "acme", User: "alice"}}
	moved := threshold // somebody else's call, but alice's counter
	moved.Subject = quota.Subject{}
	moved.Key += "/session=s-alice"
	for _, c := range []struct {
		name   string
		e      audit.Erasure
		erased int64
		calls  string
		gone   []string
		kept   []string
		tokens map[string]int64 // of the tenants
	}{
		{
			"user", audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "alice"}}, 4,
			" call-acme-bob call-other-alice  call-acme-alicex", []string{`tenant=acme/user=alice"`, `"user":"alice","team":"support","tenant":"acme"`, `call-acme-alice"`},
			[]string{"s-alicex", "tenant=other/user=alice"}, map[string]int64{"tenant=acme": 40, "tenant=other": 10},
		},
		{
			"user, removed", audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "alice"}, Remove: true}, 4,
			"call-acme-bob call-other-alice call-acme-alicex", []string{`tenant=acme/user=alice"`, `call-acme-alice"`, `"erased"`},
			[]string{"tenant=other/user=alice"}, map[string]int64{"tenant=acme": 20, "tenant=other": 10},
		},
		{
			"tenant", audit.Erasure{Scope: quota.Tenant, Subject: quota.Subject{Tenant: "acme"}}, 6,
			"  call-other-alice  ", []string{"acme", "bob", "alicex"},
			[]string{"tenant=other"}, map[string]int64{"tenant=acme": 0, "tenant=other": 10},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, audit.Config{Dir: dir})
			write(t, s, of("acme", "alice", 0), of("acme", "bob", 1), threshold, of("other", "alice", 2))
			write(t, s, of("acme", "alice", 24*time.Hour), of("acme", "alicex", 25*time.Hour), moved)
			// A line with a field of a later version stays as it is.
			odd := strings.Replace(text(t, dir), `"call-other-alice"`, `"call-other-alice","later":true`, 1)
			first := filepath.Join(dir, files(t, dir)[0])
			if err := os.WriteFile(first, []byte(odd[:strings.LastIndex(odd[:strings.Index(odd, "2026-11-24")], "\n")+1]), 0o600); err != nil {
				t.Fatal(err)
			}
			n, err := s.Erase(c.e)
			if err != nil || n != c.erased {
				t.Errorf("%d records were erased, %v; want %d", n, err, c.erased)
			}
			after := text(t, dir)
			for _, gone := range c.gone {
				if strings.Contains(after, gone) {
					t.Errorf("there still is %s in\n%s", gone, after)
				}
			}
			for _, kept := range append(c.kept, `"later":true`) {
				if !strings.Contains(after, kept) {
					t.Errorf("there is no %s any more in\n%s", kept, after)
				}
			}
			all := records(t, dir)
			if got := ids(all); got != c.calls {
				t.Errorf("calls are %q, want %q", got, c.calls)
			}
			sums := map[string]int64{"tenant=acme": 0, "tenant=other": 0}
			for _, r := range all {
				for _, n := range r.Counted {
					if _, tenant := sums[n.Key]; tenant {
						sums[n.Key] += n.Amount
					}
				}
			}
			if fmt.Sprint(sums) != fmt.Sprint(c.tokens) {
				t.Errorf("the tenants' sums are %v, want %v", sums, c.tokens)
			}
			// Once is enough, and the sink goes on.
			if n, err := s.Erase(c.e); err != nil || n != 0 {
				t.Errorf("again, %d records were erased, %v", n, err)
			}
			write(t, s, of("acme", "carol", 26*time.Hour))
			if got := ids(records(t, dir)); !strings.HasSuffix(got, "call-acme-carol") {
				t.Errorf("after erasing, calls are %q", got)
			}
			for _, name := range files(t, dir) {
				if !strings.HasSuffix(name, ".jsonl") {
					t.Errorf("%s was left behind", name)
				}
			}
		})
	}
}

func TestAnIdThatBeginsLikeAnotherIsSomebodyElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	threshold := at(0, "")
	threshold.Kind, threshold.Key = quota.KindThreshold, "tenant=acme/user=alicex"
	threshold.Subject = quota.Subject{Tenant: "acme", User: "alicex"}
	write(t, s, threshold)
	n, err := s.Erase(audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "alice"}})
	if n != 0 || err != nil || len(records(t, dir)) != 1 {
		t.Errorf("%d records of somebody else were erased: %v", n, err)
	}
}

// Files name people, also once they were rewritten.
func TestOnlyTheOwnerMayReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	mode := func() os.FileMode {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, files(t, dir)[0]))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	write(t, s, of("acme", "alice", 0))
	if got := mode(); got != 0o600 {
		t.Errorf("a file has the mode %v", got)
	}
	if _, err := s.Erase(audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "alice"}}); err != nil {
		t.Fatal(err)
	}
	if got := mode(); got != 0o600 {
		t.Errorf("a file that was rewritten has the mode %v", got)
	}
}

func TestErasingRemovesWhatNobodyCanRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	write(t, s, of("acme", "bob", 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, files(t, dir)[0])
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Join([][]byte{[]byte("{\"v\":9,\"user\":\"alice\"}\n"), whole, []byte(strings.Repeat("alice", audit.MaxLine/4) + "\n"), []byte("{\"subject\":\"alice")}, nil)
	if err := os.WriteFile(path, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := audit.EraseIn(dir, audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "alice"}})
	if err != nil || n != 3 {
		t.Errorf("%d lines were erased, %v; want 3", n, err)
	}
	if got := text(t, dir); got != string(whole) {
		t.Errorf("left is\n%.300q, want\n%q", got, whole)
	}
}

func TestWhatACrashLeavesOfAnErasureDoesNotStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	half := func() {
		t.Helper()
		for _, name := range []string{"audit-20261001-000001.jsonl.erasing", "audit-20261123-000001.jsonl.erasing", "mine.erasing"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("half a li"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	half()
	if n, err := audit.Expire(dir, noon); n != 0 || err != nil {
		t.Errorf("%d files have expired: %v", n, err)
	}
	if got := strings.Join(files(t, dir), " "); got != "audit-20261123-000001.jsonl.erasing mine.erasing" {
		t.Errorf("%s is left of what has expired", got)
	}
	half()
	open(t, audit.Config{Dir: dir})
	if got := strings.Join(files(t, dir), " "); got != "mine.erasing" {
		t.Errorf("%s is left after the sink was opened", got)
	}
}

func TestErasureNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    audit.Erasure
		want string
	}{
		{audit.Erasure{}, `no id in the scope ""`},
		{audit.Erasure{Scope: quota.User, Subject: quota.Subject{Tenant: "acme"}}, `no id in the scope "user"`},
		{audit.Erasure{Scope: quota.Global}, "Erasure.Scope is global"},
	} {
		if _, err := audit.EraseIn(t.TempDir(), c.e); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %s", c.e, err, c.want)
		}
	}
}

func TestScopesOfOnesOwnAreErasedWithWhatIsWithinThem(t *testing.T) {
	t.Parallel()
	h, err := quota.NewHierarchy(append(quota.DefaultScopes(),
		quota.ScopeSpec{Scope: "project", Within: quota.Tenant}, quota.ScopeSpec{Scope: "run", Within: "project"})...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	r := of("acme", "alice", 0)
	r.Subject.Other = map[quota.Scope]string{"project": "apollo", "run": "eleven", "site": "moon"}
	write(t, s, r)
	gone := quota.Subject{Tenant: "acme", Other: map[quota.Scope]string{"project": "apollo"}}
	if n, err := s.Erase(audit.Erasure{Hierarchy: h, Scope: "project", Subject: gone}); n != 1 || err != nil {
		t.Fatalf("%d records were erased, %v", n, err)
	}
	got := records(t, dir)[0].Subject
	if got.Other["project"] != "" || got.Other["run"] != "" || got.Other["site"] != "moon" || got.User != "alice" {
		t.Errorf("left is %+v", got)
	}
}
