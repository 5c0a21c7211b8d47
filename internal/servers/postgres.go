package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	postgresUser = "headgate"
	// postgresConnections is how many connections a server takes: 64 callers,
	// twice, and some more.
	postgresConnections = 200
)

// PostgresOptions say how a Postgres is to run. The zero value is one that does
// not wait for the disk: what was committed survives a kill of the server, and
// not of the machine.
type PostgresOptions struct {
	// FSync has a commit wait until it is on the disk, as in production.
	FSync bool
	// Config are settings such as "log_statement=all" (postgres -c). They come
	// last, so that they win over what is set here.
	Config []string
}

// Postgres is a running Postgres. It has one database for each test that asks
// for one.
type Postgres struct{ handle }

// StartPostgres starts a Postgres for this test, which ends with it. Where we
// are root it runs as postgres or nobody.
func StartPostgres(t testing.TB, o PostgresOptions) *Postgres {
	t.Helper()
	s, err := newPostgres(requirePostgres(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s.closeAfter(t)
	if err := s.startNew(1); err != nil {
		t.Fatal(err)
	}
	return &Postgres{handle{t: t, server: s}}
}

// DSN returns the address of the server's database "postgres" as a URL, which
// stays the same for its life. Use [Postgres.NewDatabase] for one that is empty
// and only the test's.
func (p *Postgres) DSN() string { return postgresDSN(p.addr(), "postgres") }

// Addr returns host:port of the server.
func (p *Postgres) Addr() string { return p.addr() }

// databases numbers the databases of the test binary.
var databases atomic.Int64

// NewDatabase makes an empty database for the test and returns its address as a
// URL. It goes with the server; on the shared one it is dropped when the test
// is over, with all connections to it.
func (p *Postgres) NewDatabase(t testing.TB) (dsn string) {
	t.Helper()
	name := "test_" + strconv.FormatInt(databases.Add(1), 10)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := p.exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	if p.isShared { // another one goes with the server
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), startLimit)
			defer cancel()
			if err := p.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Errorf("drop database %s: %v", name, err)
			}
		})
	}
	return postgresDSN(p.addr(), name)
}

// exec runs one statement over a connection of its own.
func (p *Postgres) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func postgresDSN(addr, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(postgresUser), Host: addr, Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// postgresPrograms are the programs of one installation.
type postgresPrograms struct{ initdb, postgres string }

// requirePostgres finds the programs of Postgres. initdb works with the server
// that stands beside it, so that one is taken.
func requirePostgres(t testing.TB) postgresPrograms {
	t.Helper()
	const install = "postgresql-15"
	initdb := Require(t, "initdb", install)
	if path, err := filepath.EvalSymlinks(initdb); err == nil {
		initdb = path
	}
	postgres := filepath.Join(filepath.Dir(initdb), "postgres")
	if _, err := os.Stat(postgres); err != nil {
		postgres = Require(t, "postgres", install)
	}
	return postgresPrograms{initdb, postgres}
}

// newPostgres prepares a server with a copy of the template.
func newPostgres(programs postgresPrograms, o PostgresOptions) (*server, error) {
	for _, setting := range o.Config {
		if name, _, ok := strings.Cut(setting, "="); !ok || name == "" {
			return nil, fmt.Errorf("PostgresOptions.Config has %q, want name=value", setting)
		}
	}
	dir, err := makeFolder("postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := postgresTemplate.copyTo(data, programs); err != nil {
		return nil, errors.Join(err, removeFolder(dir))
	}
	return &server{
		program: "postgres",
		dir:     dir,
		// Postgres ends at once and takes its shared memory along; killed, it
		// would leave that behind.
		death: syscall.SIGQUIT,
		ready: postgresReady,
		tidy:  tidyPostgres,
		command: func(s *server) (*exec.Cmd, error) {
			settings := append([]string{
				"listen_addresses=127.0.0.1",
				"port=" + strconv.Itoa(s.ports[0].number),
				"unix_socket_directories=",
				"fsync=" + map[bool]string{true: "on", false: "off"}[o.FSync],
				"shared_buffers=16MB",
				"max_connections=" + strconv.Itoa(postgresConnections),
				"max_wal_senders=0",
				// In its folder, and not in /dev/shm: containers give that 64
				// MB, and what a killed server has there stays.
				"dynamic_shared_memory_type=mmap",
				"huge_pages=off",
				"timezone=UTC",
				"log_timezone=UTC",
				"log_line_prefix=%m [%p] ",
			}, o.Config...)
			args := []string{"-D", data}
			for _, setting := range settings {
				args = append(args, "-c", setting)
			}
			return ordinaryCommand(dir, programs.postgres, args...)
		},
	}, nil
}

// ordinaryCommand makes a command that does not run as root, and whose language
// is that of the error messages that we look for.
func ordinaryCommand(dir, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir // it may not be able to enter ours
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"}
	account, ok, err := ordinaryAccount()
	if err != nil {
		return nil, fmt.Errorf("%s does not run as root: %w", filepath.Base(program), err)
	}
	if ok {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		account.runAs(cmd.SysProcAttr)
	}
	return cmd, nil
}

// postgresReady returns nil if the server answers, has recovered, and is the
// one of this folder.
func postgresReady(ctx context.Context, s *server) error {
	conn, err := pgx.Connect(ctx, postgresDSN(s.addr(), "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // the server is asked again anyway
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if data != filepath.Join(s.dir, "data") {
		return fmt.Errorf("another server answers at %s: its folder is %s", s.addr(), data)
	}
	return nil
}

// tidyPostgres removes the shared memory of a server that was killed: the
// seventh line of the lock file that it leaves then has the id. One that ended
// by itself leaves neither.
func tidyPostgres(s *server) error {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil // killed before it had any
	}
	var key, id int
	if _, err := fmt.Sscan(lines[6], &key, &id); err != nil {
		return fmt.Errorf("postmaster.pid: %w", err)
	}
	return removeSharedMemory(id)
}
