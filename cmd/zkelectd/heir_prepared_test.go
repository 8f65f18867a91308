package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/boottime"
)

// workGroups returns the control groups for work that a node's guard has open.
func (f *fleet) workGroups(id string) (dirs []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", f.daemons[id].cmd.Process.Pid))
	for _, file := range files {
		if dir, err := os.Readlink(file); err == nil && strings.HasPrefix(filepath.Base(dir), "zkelectd-work-") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// The heir has prepared the start of its work. It takes over although its keeper or its daemon has died since, and what a lost host had
// prepared is gone after its next start.
func TestAnHeirThatHasPreparedTakesOver(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"nothing", "keeper", daemonCommandName, "host"} {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.join("a", "b")
			prepared := func() bool { return len(f.workGroups("b")) == 1 }
			f.eventually("b prepares", prepared)
			before := f.workGroups("b")[0]
			switch dies {
			case "nothing":
			case "host":
				f.crash("b")
				f.start("b")
			default:
				syscall.Kill(f.guardChild("b", dies), syscall.SIGKILL)
			}
			if dies != "nothing" {
				f.eventually("the end of what was prepared", func() bool { return !exists(before) })
			}
			if dies == daemonCommandName || dies == "host" {
				f.eventually("b prepares again", prepared)
			}
			from := boottime.Now()
			f.daemons["a"].signal(syscall.SIGTERM)
			f.until("b leads", leads("b"))
			t.Logf("b leads %s after the signal", boottime.Now()-from)
			f.waitForWork("b")
			f.checkInvariants()
		})
	}
}
