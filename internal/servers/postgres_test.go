package servers

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// connect opens a connection that is closed after the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// query returns the one value that a statement returns.
func query[T any](t *testing.T, dsn, sql string, args ...any) (v T) {
	t.Helper()
	if err := connect(t, dsn).QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestAKilledPostgresHasWhatItCommitted(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, PostgresOptions{FSync: true})
	dsn := p.NewDatabase(t)
	c := connect(t, dsn)
	if _, err := c.Exec(t.Context(), "CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	idle := connect(t, dsn)
	acknowledged := make(chan int64, 1)
	begun := make(chan struct{})
	go func() {
		var last, n int64
		for {
			if err := c.QueryRow(context.Background(), "UPDATE counter SET n = n + 1 RETURNING n").Scan(&n); err != nil {
				acknowledged <- last
				return
			}
			if last = n; last == 20 {
				close(begun)
			}
		}
	}()
	<-begun
	p.Kill()
	if err := idle.Ping(t.Context()); err == nil {
		t.Error("a connection survived")
	}
	last := <-acknowledged
	p.Restart()
	// One more than was acknowledged may have been committed.
	if n := query[int64](t, dsn, "SELECT n FROM counter"); n < last || n > last+1 {
		t.Errorf("counter is %d, %d were acknowledged", n, last)
	}
}

func TestAPausedPostgresAnswersNobodyAndThenEverybody(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, PostgresOptions{})
	dsn := p.NewDatabase(t)
	c := connect(t, dsn)
	p.Pause()
	answer := make(chan error, 1)
	go func() { answer <- c.Ping(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, dsn); ctx.Err() == nil {
		t.Errorf("a new connection ended with %v before its time-out", err)
	}
	select {
	case err := <-answer:
		t.Errorf("the old connection ended with %v", err)
	default:
	}
	p.Resume()
	if err := <-answer; err != nil {
		t.Errorf("who waited got %v", err)
	}
	if got := query[int](t, dsn, "SELECT 1"); got != 1 {
		t.Errorf("SELECT 1 is %d", got)
	}
	p.Pause() // and is ended all the same
}

func TestDatabasesAreEmptyAndApart(t *testing.T) {
	t.Parallel()
	p := SharedPostgres(t)
	var first string
	t.Run("two", func(t *testing.T) {
		one, two := p.NewDatabase(t), p.NewDatabase(t)
		first = one
		for _, dsn := range []string{one, two} {
			if n := query[int](t, dsn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 0 {
				t.Errorf("%s has %d tables", dsn, n)
			}
			if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE x ()"); err != nil {
				t.Error(err)
			}
		}
	})
	if c, err := pgx.Connect(t.Context(), first); err == nil {
		_ = c.Close(t.Context())
		t.Errorf("%s is still there after its test", first)
	}
}

func TestSettingsOfPostgres(t *testing.T) {
	t.Parallel()
	safe := StartPostgres(t, PostgresOptions{FSync: true, Config: []string{"work_mem=3MB", "shared_buffers=8MB"}}).DSN()
	fast := StartPostgres(t, PostgresOptions{}).DSN()
	for _, tt := range []struct{ dsn, name, want string }{
		{safe, "fsync", "on"},
		{fast, "fsync", "off"},
		{fast, "synchronous_commit", "on"},
		{safe, "work_mem", "3MB"},
		{safe, "shared_buffers", "8MB"},
		{fast, "shared_buffers", "16MB"},
		{fast, "unix_socket_directories", ""},
		{fast, "listen_addresses", "127.0.0.1"},
		{fast, "server_encoding", "UTF8"},
		{fast, "TimeZone", "UTC"},
	} {
		if got := query[string](t, tt.dsn, "SELECT current_setting($1)", tt.name); got != tt.want {
			t.Errorf("%s is %q, want %q", tt.name, got, tt.want)
		}
	}
	// What initdb draws is the same where it ran once.
	const identity = "SELECT system_identifier FROM pg_control_system()"
	if a, b := query[int64](t, safe, identity), query[int64](t, fast, identity); a != b {
		t.Errorf("initdb has run for each of two servers: %d and %d", a, b)
	}
}

func TestACopyOfAFolderHasItsModes(t *testing.T) {
	t.Parallel()
	from := filepath.Join(t.TempDir(), "from")
	if err := os.MkdirAll(filepath.Join(from, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "a", "f"), []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "to")
	if err := copyFolder(to, from); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, "a/b": 0o700, "a/f": 0o640} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, want mode %v", name, err, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(to, "a", "f")); err != nil || string(text) != "text" {
		t.Errorf("the copy is %q (%v)", text, err)
	}
}
