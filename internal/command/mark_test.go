package command

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// startMarked starts a process in a session of its own with a mark. It returns a channel that is closed when the process has ended.
func startMarked(t *testing.T, mark string) (ended <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-over
	})
	return over
}

// What a process that was killed has left is found by its mark; that of a living process, and of another PID namespace, is
// not touched.
func TestOrphansAreKilled(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	ns, pid := pidNamespace(os.Getpid()), os.Getpid()
	orphans := []<-chan struct{}{
		startMarked(t, fmt.Sprintf("%s%s-%d-1-1", markName, ns, dead.Process.Pid)),
		startMarked(t, fmt.Sprintf("%s%s-%d-1-1", markName, ns, pid)), // the pid was used again
	}
	kept := []<-chan struct{}{
		startMarked(t, Mark()), startMarked(t, fmt.Sprintf("%s1%s-%d-1-1", markName, ns, dead.Process.Pid)), startMarked(t, markName+"something"),
	}
	KillOrphans()
	for _, ended := range orphans {
		<-ended
	}
	for i, ended := range kept {
		select {
		case <-ended:
			t.Errorf("process %d was killed", i)
		default:
		}
	}
}

func TestMarkedProcessesAreKilled(t *testing.T) {
	mark := Mark()
	ended, other := startMarked(t, mark), startMarked(t, Mark())
	KillMarked(mark)
	<-ended
	select {
	case <-other:
		t.Error("that of another run was killed, too")
	default:
	}
}
