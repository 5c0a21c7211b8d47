// Command vulncheck runs govulncheck over the module and tells three ends apart: nothing was found, a
// vulnerability was found, and the database of vulnerabilities cannot be had from here.
//
//	go run ./internal/tools/vulncheck -tool golang.org/x/vuln/cmd/govulncheck@v1.9.0
//
// The database is asked for first, with a short timeout, so that a machine without it is told so at once:
// that is a message and exit code 0, because nothing is known to be wrong. A vulnerability found is exit
// code 1, and so is anything that kept govulncheck from its work: a scan that was not made is no clean scan.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	tool := flag.String("tool", "", "govulncheck's package and version, as go install takes it")
	db := flag.String("db", "https://vuln.go.dev", "address of the vulnerability database: http, https or file")
	wait := flag.Duration("wait", 10*time.Second, "how long to wait for the database's first answer")
	flag.Parse()
	if *tool == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx := context.Background()
	if err := reach(ctx, http.DefaultClient, *db, *wait); err != nil {
		fmt.Println(skipped(*db, err.Error()))
		return
	}
	code, stderr, err := scan(ctx, os.Stdout, *tool, *db)
	if err != nil {
		fmt.Fprintf(os.Stderr, "vulncheck: %v\n", err)
		os.Exit(1)
	}
	message, clean := judge(code, stderr, *db)
	fmt.Println(message)
	if !clean {
		os.Exit(1)
	}
}

// reach reports why the database cannot be had, or nil. It asks for the smallest file of a database, the one
// that says when it was last changed (Go vulnerability database API, "index/db.json"). A database in a folder
// is not asked: govulncheck itself says what is wrong with one.
func reach(ctx context.Context, client *http.Client, db string, wait time.Duration) error {
	u, err := url.Parse(db)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("index/db.json").String(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // without the address, which the message names
		}
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	var index struct{ Modified time.Time }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&index); err != nil || index.Modified.IsZero() {
		return errors.New("its answer is not that of a vulnerability database")
	}
	return nil
}

// scan installs the tool into a folder of its own, which does not outlive the scan, and runs it over the
// module of the working directory, writing its report to w. "go run" would do, but hides the exit code.
func scan(ctx context.Context, w io.Writer, tool, db string) (code int, stderr string, err error) {
	bin, err := os.MkdirTemp("", "vulncheck-")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(bin)
	install := exec.CommandContext(ctx, "go", "install", tool)
	install.Env = append(os.Environ(), "GOBIN="+bin)
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		return 0, "", fmt.Errorf("go install %s: %w", tool, err)
	}
	name := path.Base(strings.SplitN(tool, "@", 2)[0])
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), "-db", db, "./...")
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), errs.String(), nil
	}
	return 0, errs.String(), err
}

// judge says what the end of a scan means. Exit code 3 is govulncheck's "vulnerabilities found"; a database
// that went away after it was reached shows in its message only.
func judge(code int, stderr, db string) (message string, clean bool) {
	stderr = strings.TrimSpace(stderr)
	const fetching = "fetching vulnerabilities:"
	switch {
	case code == 0:
		return "vulncheck: no known vulnerability is called", true
	case code == 3:
		return "vulncheck: vulnerabilities found, see above", false
	case strings.Contains(stderr, fetching):
		_, reason, _ := strings.Cut(stderr, fetching)
		return skipped(db, strings.TrimSpace(reason)), true
	default:
		return fmt.Sprintf("vulncheck: govulncheck ended with code %d: %s", code, stderr), false
	}
}

// skipped is the message for a scan that was not made because the database cannot be had.
func skipped(db, reason string) string {
	return fmt.Sprintf("vulncheck: skipped: the vulnerability database %s cannot be reached: %s", db, reason)
}
