package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"zkelectd/internal/procinfo"
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(testTimeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not happen", what)
		}
	}
}

func alive(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && !s.Ended()
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// descriptors are the open files of a process.
func descriptors(pid string) []string {
	links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	var all []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			all = append(all, target)
		}
	}
	return all
}

// open counts the open files of the guard and of the daemon.
func (d *remoteDaemon) openFiles() (guard, daemon int) {
	return len(descriptors(strconv.Itoa(d.cmd.Process.Pid))), len(descriptors(strconv.Itoa(d.pid)))
}
