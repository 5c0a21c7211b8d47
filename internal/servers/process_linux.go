package servers

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func signalAtDeath(attr *syscall.SysProcAttr, death syscall.Signal) { attr.Pdeathsig = death }

// processTable reads /proc, because a slim container has no ps.
func processTable() (map[int]status, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	table := map[int]status{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
			continue // it has ended since
		case err != nil:
			return nil, err
		}
		s, err := parseStat(text)
		if err != nil {
			return nil, fmt.Errorf("/proc/%s/stat: %w", name, err)
		}
		table[pid] = s
	}
	return table, nil
}

// parseStat reads the text of /proc/PID/stat (proc(5)): "PID (NAME) STATE
// PARENT …", where the name may hold any byte, blanks and brackets too.
func parseStat(text []byte) (status, error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 || len(fields[0]) != 1 {
		return status{}, fmt.Errorf("no state and parent in %q", text)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return status{}, fmt.Errorf("parent is %q", fields[1])
	}
	return status{parent: parent, state: fields[0][0]}, nil
}

// removeSharedMemory removes a segment of System V shared memory, which
// outlives a process that is killed. One that is gone already is no error.
func removeSharedMemory(id int) error {
	_, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
		return fmt.Errorf("remove shared memory %d: %w", id, err)
	}
	return nil
}
