package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// identity tells a zkelectd, by its guard's process, from every other one on this host and elsewhere.
type identity struct {
	host    string
	pid     int
	boot    string
	started uint64
}

func identify(pid int) identity {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	started, _ := processStart(pid)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return identity{host: host, pid: pid, boot: string(bytes.TrimSpace(boot)), started: started}
}

// processStart is when a process began, in clock ticks since boot: with the pid it names a process for good. It is an error
// if the process has ended, even if its parent has not yet waited for it.
func processStart(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; the start is the 20th field after it.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
