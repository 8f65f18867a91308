package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/process"
)

// A second start with the session file of a live zkelectd is refused and changes nothing: if guard and daemon are then
// killed together, release finds what they have left behind.
func TestASecondStartLeavesTheFirstOneAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	session := f.sessionFile("a")
	f.withAddress("a", 100)
	first := f.start("a")
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	before, root := f.sessionFiles(session), f.paths.Root
	f.paths.Root += "-other"
	f.configure("other", "dc1", 100, "zookeeper: {session_file: "+session+"}\n")
	f.paths.Root = root
	for _, config := range []string{"a", "other"} { // the same configuration, and that of another daemon and group
		id := "second with " + config
		second := f.startCommand(id, exec.Command("zkelectd", "run", "--config", f.file(config)))
		f.eventually("the second one ends, or writes the files", func() bool {
			return isDone(second) || fmt.Sprint(f.sessionFiles(session)) != fmt.Sprint(before)
		})
		second.Signal(syscall.SIGINT)
		if code := f.exit(id); code != statusError || !strings.Contains(second.Output(), fmt.Sprintf("process %d", first.Process.Pid)) {
			t.Errorf("exit status %d: %s", code, second.Output())
		}
		if after := f.sessionFiles(session); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the files were %q and are %q", before, after)
		}
	}
	f.crash("a")
	f.releasesSession(session)
	if f.holds("a") {
		t.Error("post_stop did not run")
	}
	f.checkInvariants()
}

// sessionFiles returns the contents of a session file and of those of its leaderships.
func (f *fleet) sessionFiles(session string) map[string]string {
	all := map[string]string{session: read(session)}
	more, err := filepath.Glob(session + ".[0-9]*")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, path := range more {
		all[path] = read(path)
	}
	return all
}

func isDone(p *process.Process) bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}
