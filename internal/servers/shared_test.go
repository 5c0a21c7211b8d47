package servers

import (
	"strings"
	"testing"
)

func TestSharedServersAreStartedOnceAndStayUntouched(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{}
	for range 2 {
		for name, f := range map[string]func(t testing.TB) (string, *handle){
			"redis": func(t testing.TB) (string, *handle) { r := SharedRedis(t); return r.Addr(), &r.handle },
			"postgres": func(t testing.TB) (string, *handle) {
				p := SharedPostgres(t)
				return p.Addr(), &p.handle
			},
		} {
			r := record(t, func(t testing.TB) {
				addr, h := f(t)
				if was := addrs[name]; was != "" && was != addr {
					t.Errorf("%s is at %s, was at %s", name, addr, was)
				}
				addrs[name] = addr
				t.Log("the four")
				h.Kill()
				h.Restart()
				h.Pause()
				h.Resume()
			})
			if r.skipped {
				t.Skip(r.text())
			}
			before, after, _ := strings.Cut(r.text(), "the four")
			if before != "" || strings.Count(after, "of the shared") != 4 {
				t.Errorf("%s: said %q, want four complaints", name, r.text())
			}
		}
	}
	if err := SharedRedis(t).Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if got := query[int](t, SharedPostgres(t).NewDatabase(t), "SELECT 1"); got != 1 {
		t.Errorf("SELECT 1 is %d", got)
	}
}
