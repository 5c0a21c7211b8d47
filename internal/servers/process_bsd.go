//go:build unix && !linux && !solaris && !aix

package servers

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// signalAtDeath does nothing: only Linux and FreeBSD have such a signal.
func signalAtDeath(*syscall.SysProcAttr, syscall.Signal) {}

// processTable asks ps, which is part of these systems.
func processTable() (map[int]status, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,state=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	table := map[int]status{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		var state string
		if _, err := fmt.Sscan(line, &pid, &parent, &state); err != nil {
			return nil, fmt.Errorf("ps printed %q: %w", line, err)
		}
		table[pid] = status{parent: parent, state: state[0]}
	}
	return table, nil
}

// removeSharedMemory does nothing: there is no portable way.
func removeSharedMemory(int) error { return nil }
