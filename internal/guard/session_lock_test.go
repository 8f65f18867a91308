package guard

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/filelock"
)

// Guard and daemon share the lock on the session file until both have ended. Keepers and work do not have it.
func TestGuardAndDaemonShareTheLock(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	call[int](d, "SetSession", fx.credentials())
	d.startWork(time.Hour)
	checkHolders := func(pids ...int) {
		t.Helper()
		_, err := LockSessionFile(t.Context(), fx.credentials().File, 0)
		var held *filelock.HeldError
		if !errors.As(err, &held) || len(held.Holders) != len(pids) {
			t.Fatalf("%v, want %d holders", err, len(pids))
		}
		for _, pid := range pids {
			if !strings.Contains(err.Error(), fmt.Sprintf("process %d", pid)) {
				t.Errorf("%v does not name %d", err, pid)
			}
		}
	}
	checkHolders(fx.cmd.Process.Pid, d.pid)
	fx.signalGuard(syscall.SIGKILL)
	<-fx.exited
	checkHolders(d.pid)
	syscall.Kill(d.pid, syscall.SIGKILL)
	lock, err := LockSessionFile(t.Context(), fx.credentials().File, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if !SessionFileUsed(fx.credentials().File) {
		t.Error("the session file was never used")
	}
	if _, err := os.Stat(fx.credentials().File + lockSuffix); err != nil {
		t.Error(err)
	}
}
