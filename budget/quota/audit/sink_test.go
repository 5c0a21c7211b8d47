package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
)

var (
	silent = slog.New(slog.NewTextHandler(io.Discard, nil))
	noon   = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
)

func open(t testing.TB, cfg audit.Config) *audit.Sink {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = silent
	}
	s, err := audit.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // some tests leave it broken
	return s
}

// records are all records of a directory, which must be whole.
func records(t testing.TB, dir string) (all []audit.Record) {
	t.Helper()
	for r, err := range audit.Read(dir, time.Time{}, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// ids are the calls of records.
func ids(all []audit.Record) string {
	var s []string
	for _, r := range all {
		s = append(s, r.Call)
	}
	return strings.Join(s, " ")
}

func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func write(t testing.TB, s *audit.Sink, all ...audit.Record) {
	t.Helper()
	for _, r := range all {
		if err := s.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

func at(d time.Duration, call string) audit.Record {
	return audit.Record{V: audit.Version, Kind: quota.KindCall, At: noon.Add(d), Call: call}
}

func TestEveryEventIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "audit")
	sink := open(t, audit.Config{Dir: dir})
	bus := quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{sink.Listen}, Logger: silent})
	local := time.FixedZone("x", 3*3600)
	about := quota.Occasion{
		At: time.Now().In(local), Turn: "t", Call: "c",
		Subject: quota.Subject{Tenant: "acme", User: "alice", Other: map[quota.Scope]string{"project": "p\n1"}, Plan: "pro"},
	}
	span := quota.Span{Start: noon.In(local), End: noon.Add(time.Hour)}
	counter := quota.Counter{Key: "tenant=acme/user=alice", Window: "day", Unit: quota.Tokens}
	events := []quota.Event{
		quota.CallSettled{
			Occasion: about, Model: "m-1", Agent: "root", Outcome: quota.CallCharged,
			Estimate: usage.Usage{Input: 5, Output: 6, Flags: usage.Estimated},
			Usage:    usage.Usage{Input: 1, CachedInput: 2, CacheWrite: 3, Output: 4, Thoughts: 5},
			Held:     quota.Amounts{quota.Calls: 1, quota.Tokens: 11}, Charged: quota.Amounts{quota.Calls: 1, quota.Tokens: 5, quota.Credits: 7, quota.Money: 9},
			Weights:  "2026-11",
			Price:    usage.Price{Model: "m", Variant: usage.Batch, ValidFrom: noon.In(local), AsOf: noon.Add(time.Hour).In(local), Basis: usage.Defaulted, Rates: usage.Rates{Input: usage.PerMillion(1)}},
			Counted:  []quota.Counted{{Limit: "mine", Scope: quota.User, Counter: counter, Span: span, Amount: 5, Observed: true}},
			Corrects: true, BeforeUsage: usage.Usage{Output: 3}, Before: quota.Amounts{quota.Tokens: 3},
		},
		quota.ThresholdReached{Occasion: about, Limit: "mine", Scope: quota.User, Counter: counter, Span: span, Percent: 80, Spent: 8, Max: 10},
		quota.Denied{Occasion: about, Denial: &quota.Denial{
			Reason: quota.ReasonExhausted, Stage: quota.MidTurn, Limit: "mine", Scope: quota.User, Unit: quota.Turns, Max: 10, Used: 9, Requested: 2,
			ResetsAt: span.End, RetryAfter: 1500 * time.Millisecond, Observed: true, Err: errors.New("dial tcp: secret"),
		}},
		quota.Overage{Occasion: about, Limit: "soft", Scope: quota.Team, Unit: quota.Money, Max: 1, Used: 2, Requested: 3, ResetsAt: span.End},
		quota.TurnBegan{Occasion: about, Counted: []quota.Counted{{Limit: "mine", Scope: quota.User, Counter: counter, Span: span, Amount: 1}}},
		quota.OutageBegan{Occasion: quota.Occasion{At: about.At}},
		quota.OutageEnded{Occasion: quota.Occasion{At: about.At}, Lasted: 3 * time.Second, Failed: 4},
	}
	want := []audit.Record{
		{
			Model: "m-1", Agent: "root", Outcome: "charged",
			Estimate: audit.Tokens{Input: 5, Output: 6, Flags: "estimated"},
			Usage:    audit.Tokens{Input: 1, Cached: 2, CacheWrite: 3, Output: 4, Thoughts: 5},
			Held:     audit.Amounts{Calls: 1, Tokens: 11}, Charged: audit.Amounts{Calls: 1, Tokens: 5, Credits: 7, Money: 9},
			Weights: "2026-11", Price: audit.Price{Model: "m", Variant: "batch", From: noon, AsOf: noon.Add(time.Hour), Basis: "default"},
			Counted: []audit.Counted{{
				Limit: "mine", Scope: "user", Key: "tenant=acme/user=alice", Window: "day", Unit: "tokens",
				Start: noon, End: noon.Add(time.Hour), Amount: 5, Observed: true,
			}},
			Corrects: true, BeforeUsage: audit.Tokens{Output: 3}, Before: audit.Amounts{Tokens: 3},
		},
		{
			Limit: "mine", Scope: "user", Key: "tenant=acme/user=alice", Window: "day", Unit: "tokens",
			Start: noon, End: noon.Add(time.Hour), Percent: 80, Used: 8, Max: 10,
		},
		{
			Stage: "mid_turn", Reason: "exhausted", Limit: "mine", Scope: "user", Unit: "turns", Max: 10, Used: 9, Requested: 2,
			ResetsAt: noon.Add(time.Hour), RetryMS: 1500, Observed: true,
		},
		{Limit: "soft", Scope: "team", Unit: "money", Max: 1, Used: 2, Requested: 3, ResetsAt: noon.Add(time.Hour)},
		{Counted: []audit.Counted{{
			Limit: "mine", Scope: "user", Key: "tenant=acme/user=alice", Window: "day", Unit: "tokens",
			Start: noon, End: noon.Add(time.Hour), Amount: 1,
		}}},
		{},
		{LastedMS: 3000, Failed: 4},
	}
	for i, e := range events {
		bus.Publish(e)
		want[i].V, want[i].Kind, want[i].At = audit.Version, e.Kind(), about.At.Round(0).UTC()
		if i < 5 {
			want[i].Subject, want[i].Turn, want[i].Call = about.Subject, "t", "c"
		}
	}
	if err := errors.Join(bus.Close(t.Context()), sink.Close()); err != nil {
		t.Fatal(err)
	}
	got := records(t, dir)
	if len(got) != len(want) {
		t.Fatalf("%d records were read, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("record %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, files(t, dir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("secret")) {
		t.Error("the text of a denial's cause is in the audit")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

func TestFilesAreOfOneDayAndABoundedSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir, MaxFile: 300})
	for i := range 6 { // of about 80 bytes
		write(t, s, at(time.Duration(i), fmt.Sprint("a", i)))
	}
	write(t, s, at(24*time.Hour, "b"), at(23*time.Hour, "late"), at(48*time.Hour, "c"))
	want := []string{
		"audit-20261123-000001.jsonl", "audit-20261123-000002.jsonl", "audit-20261124-000001.jsonl", "audit-20261125-000001.jsonl",
	}
	if got := files(t, dir); !reflect.DeepEqual(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	if got, want := ids(records(t, dir)), "a0 a1 a2 a3 a4 a5 b late c"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	// Another run never touches files that are there.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, audit.Config{Dir: dir}), at(49*time.Hour, "d"))
	if got := files(t, dir); got[len(got)-1] != "audit-20261125-000002.jsonl" {
		t.Errorf("another run wrote to %v", got)
	}
}

func TestATornLastLineIsPassedOverAndOthersAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, open(t, audit.Config{Dir: dir}), at(0, "a"), at(1, "b"))
	path := filepath.Join(dir, files(t, dir)[0])
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) { // a crash in the middle of any byte
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := len(records(t, dir)), bytes.Count(whole[:cut], []byte("\n")); got != want {
			t.Fatalf("cut after %d bytes: %d records, want %d", cut, got, want)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"{\"v\":1,\"prompt\": \"tell me", "it is no record"},
		{"", "it is no record"},
		{`{"v":2,"kind":"call","at":"2026-11-23T12:00:00Z"}`, "v is 2, must be 1"},
		{`{"v":1,"at":"2026-11-23T12:00:00Z"}`, "kind is not set"},
		{`{"v":1,"kind":"call"}`, "at is not set"},
		{`{"v":1,"kind":"call","at":"2026-11-23T12:00:00Z","charged":{"tokens":"tell me"}}`, `field "charged.tokens" cannot be a string`},
		{`{"v":1,"kind":"call","at":"2026-11-23T12:00:00Z","charged":{"tokens":-1}}`, "an amount is -1, must not be negative"},
		{strings.Repeat("x", audit.MaxLine+1), "more than 1048576 bytes"},
	} {
		text := append([]byte(c.line+"\n"), whole...)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var bad *audit.LineError
		good := 0
		for _, err := range audit.Read(dir, time.Time{}, time.Time{}) {
			if err == nil {
				good++
			} else if !errors.As(err, &bad) {
				t.Fatal(err)
			}
		}
		if good != 2 || bad == nil || bad.Line != 1 || !strings.Contains(bad.Error(), c.want) || strings.Contains(bad.Error(), "tell me") {
			t.Errorf("%.60q: %d records and %v, want 2 and %q", c.line, good, bad, c.want)
		}
	}
}

func TestReadKeepsToTheTimesThatWereAskedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	for i := range 10 {
		write(t, s, at(time.Duration(i)*12*time.Hour, fmt.Sprint(i)))
	}
	for _, c := range []struct {
		from, to int // in units of 12 h; below 0 is no bound
		want     string
	}{{-1, -1, "0 1 2 3 4 5 6 7 8 9"}, {3, -1, "3 4 5 6 7 8 9"}, {-1, 4, "0 1 2 3"}, {2, 5, "2 3 4"}, {5, 5, ""}, {30, -1, ""}} {
		bound := func(n int) (at time.Time) {
			if n < 0 {
				return at
			}
			return noon.Add(time.Duration(n) * 12 * time.Hour)
		}
		var got []audit.Record
		for r, err := range audit.Read(dir, bound(c.from), bound(c.to)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if ids(got) != c.want {
			t.Errorf("from %d to %d: %s, want %s", c.from, c.to, ids(got), c.want)
		}
	}
	for range audit.Read(dir, time.Time{}, time.Time{}) {
		break // must not panic
	}
	for _, err := range audit.Read(filepath.Join(dir, "none"), time.Time{}, time.Time{}) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no directory: %v", err)
		}
	}
}

func TestAClockThatWasAheadHidesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	write(t, s, at(0, "a"), at(10*24*time.Hour, "ahead"), at(time.Minute, "b"), at(2*time.Minute, "c"))
	var got []audit.Record
	for r, err := range audit.Read(dir, noon.Add(-time.Hour), noon.Add(time.Hour)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if ids(got) != "a b c" {
		t.Errorf("of the day there is %q, want a b c", ids(got))
	}
	if n, err := audit.Expire(dir, noon.Add(48*time.Hour)); n != 2 || err != nil {
		t.Errorf("%d files of the day have expired, want 2: %v", n, err)
	}
}

func TestRecordsAreWrittenInTimeAndEachAtOnceIfAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, audit.Config{Dir: dir, FlushEvery: 2 * time.Second})
		if err := s.Append(at(0, "a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1999 * time.Millisecond)
		synctest.Wait()
		if n := len(records(t, dir)); n != 0 {
			t.Errorf("%d records are there before their time", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := len(records(t, dir)); n != 1 {
			t.Errorf("%d records are there after their time, want 1", n)
		}
		each := t.TempDir()
		s = open(t, audit.Config{Dir: each, Sync: audit.SyncEach})
		if err := s.Append(at(0, "a")); err != nil || len(records(t, each)) != 1 {
			t.Errorf("with SyncEach a record is not there at once: %v", err)
		}
	})
}

func TestWhatCannotBeWrittenIsTriedAgainAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "audit")
		var log bytes.Buffer
		s := open(t, audit.Config{Dir: dir, MaxBuffer: 1000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := os.Remove(dir); err != nil { // a disk that is gone
			t.Fatal(err)
		}
		lost := 0
		for i := range 100 {
			if err := s.Append(at(0, fmt.Sprint(i))); err != nil {
				lost++
			}
		}
		time.Sleep(5 * time.Second)
		if st := s.Stats(); st.Lost != int64(lost) || st.Buffered != int64(100-lost) || lost == 0 || lost == 100 || st.Written != 0 {
			t.Errorf("%d were refused, stats are %+v", lost, st)
		}
		if err := s.Flush(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Flush says %v", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Written != int64(100-lost) || st.Buffered != 0 {
			t.Errorf("the disk is back, and stats are %+v", st)
		}
		if n := len(records(t, dir)); n != 100-lost {
			t.Errorf("%d records are there, want %d", n, 100-lost)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("the log was told %d times, want once:\n%s", n, &log)
		}
	})
}

func TestAFileThatWasMovedIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	write(t, s, at(0, "a"))
	old := filepath.Join(dir, files(t, dir)[0])
	if err := os.Rename(old, old+".gz"); err != nil {
		t.Fatal(err)
	}
	write(t, s, at(1, "b"))
	if got := ids(records(t, dir)); got != "b" {
		t.Errorf("read %s, want b", got)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  audit.Config
		want string
	}{
		{audit.Config{}, "Config.Dir is not set"},
		{audit.Config{Dir: taken}, "Config.Dir: "},
		{audit.Config{Dir: "x", FlushEvery: -1}, "Config.FlushEvery is -1ns"},
		{audit.Config{Dir: "x", Keep: -1}, "Config.Keep is -1ns"},
		{audit.Config{Dir: "x", MaxBuffer: -1}, "Config.MaxBuffer is -1"},
		{audit.Config{Dir: "x", MaxFile: -1}, "Config.MaxFile is -1"},
		{audit.Config{Dir: "x", Sync: 3}, "Config.Sync is 3"},
	} {
		if _, err := audit.Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

func TestAClosedSinkTakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	if err := s.Append(at(0, "a")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(at(0, "b")); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("Append says %v", err)
	}
	if got := ids(records(t, dir)); got != "a" || s.Stats().Lost != 1 {
		t.Errorf("read %s, stats are %+v", got, s.Stats())
	}
}

func BenchmarkListen(b *testing.B) {
	s := open(b, audit.Config{Dir: b.TempDir(), Sync: audit.SyncNever})
	var e quota.Event = quota.CallSettled{
		Occasion: quota.Occasion{At: noon, Turn: "t", Call: "c", Subject: quota.Subject{Tenant: "acme", User: "alice"}},
		Model:    "m-1", Outcome: quota.CallCharged, Charged: quota.Amounts{quota.Tokens: 100},
		Counted: make([]quota.Counted, 5),
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Listen(e)
	}
}

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	for _, r := range []audit.Record{{At: noon}, {Kind: quota.KindCall}} {
		if err := s.Append(r); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	s.Listen(quota.OutageBegan{}) // of no time
	write(t, s, audit.Record{Kind: quota.KindCall, At: noon, Call: "a"})
	if got, st := ids(records(t, dir)), s.Stats(); got != "a" || st.Lost != 3 || st.Written != 1 {
		t.Errorf("there is %q, and stats are %+v", got, st)
	}
}

func TestAFullBufferIsWrittenBeforeItsTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir, MaxBuffer: 500, FlushEvery: time.Hour})
	var want []string
	for i := range 40 {
		if err := s.Append(at(time.Duration(i), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint(i))
	}
	if st := s.Stats(); st.Written < 30 || st.Lost != 0 || st.Written+st.Buffered != 40 {
		t.Errorf("stats are %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ids(records(t, dir)); got != strings.Join(want, " ") {
		t.Errorf("read %s", got)
	}
}

func TestTextsOfCallersDoNotMakeARecordTooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, audit.Config{Dir: dir})
	long := strings.Repeat("é", audit.MaxLine)
	s.Listen(quota.CallSettled{Occasion: quota.Occasion{At: noon, Call: long}, Model: "m" + long, Agent: long})
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	r := records(t, dir)[0]
	for field, text := range map[string]string{"call": r.Call, "model": r.Model, "agent": r.Agent} {
		if len(text) > 256 || len(text) < 250 || !strings.HasPrefix("m"+long, text) && !strings.HasPrefix(long, text) {
			t.Errorf("%s has %d bytes: %.20s…", field, len(text), text)
		}
	}
}

func TestAReportGoesOnPastDamagedLines(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	mixed := func(yield func(audit.Record, error) bool) {
		_ = yield(at(0, "a"), nil) && yield(audit.Record{}, &audit.LineError{Line: 2, Err: broken}) &&
			yield(at(1, "b"), nil) && yield(audit.Record{}, broken)
	}
	var lines []int
	var got []audit.Record
	var last error
	for r, err := range audit.Whole(mixed, func(e *audit.LineError) { lines = append(lines, e.Line) }) {
		if last = err; err == nil {
			got = append(got, r)
		}
	}
	if ids(got) != "a b" || fmt.Sprint(lines) != "[2]" || !errors.Is(last, broken) {
		t.Errorf("read %s, told of the lines %v, and the error is %v", ids(got), lines, last)
	}
	for range audit.Whole(mixed, nil) {
		break // must not panic
	}
}
