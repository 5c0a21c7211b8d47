package servers

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestFoldersOfDeadTestBinariesAreRemovedAndOthersStay(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are no advisory locks here")
	}
	base := t.TempDir()
	alive, lock, err := makeRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	dead, gone, err := makeRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = gone.Close() // as the end of its process does
	begun := filepath.Join(base, folderPrefix+"begun")
	foreign := filepath.Join(base, "foreign")
	for _, dir := range []string{begun, foreign} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	removeAbandoned(base)

	for dir, want := range map[string]bool{alive: true, dead: false, begun: true, foreign: true} {
		if _, err := os.Stat(dir); os.IsNotExist(err) == want {
			t.Errorf("%s: %v, want it to be there: %v", filepath.Base(dir), err, want)
		}
	}
}

func TestAFolderThatOthersCannotEnterIsNotTaken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes here")
	}
	open, err := os.MkdirTemp("/tmp", "headgate-open-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(open)
	closed := filepath.Join(open, "closed")
	inner := filepath.Join(closed, "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{open: open, closed: "/tmp", inner: "/tmp", filepath.Join(open, "none"): "/tmp"} {
		if got := publicTemp(dir); got != want {
			t.Errorf("for %s it takes %s, want %s", dir, got, want)
		}
	}
}
