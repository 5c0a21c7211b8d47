package chaos_test

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// canFill is true where processes can be kept from writing.
const canFill = true

// fillDisk has writes of this process to a file of SQLite, and to its log, fail beyond where they end
// now, for a while, and again and again.
func fillDisk(file string, say say) {
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		say("wrong: %v", err)
		return
	}
	for full := true; ; full = !full {
		time.Sleep(500 * time.Millisecond)
		limit := was
		if info, err := os.Stat(file + "-wal"); err == nil && full {
			limit.Cur = uint64(info.Size()) + 8<<10
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			say("wrong: %v", err)
			return
		}
	}
}
