package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/filelock"
)

// Guard and daemon share the lock on the session file until both have ended. Keepers and work do not have it.
func TestGuardAndDaemonShareTheLock(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
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

// A daemon whose lock was removed records nothing, as another one may have locked the file, and says so.
func TestALockThatWasRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "session")
	lock, err := LockSessionFile(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	text := new(syncBuffer)
	log := slog.New(slog.NewTextHandler(text, nil))
	if got := inheritLock(int(lock.Fd()), log); got != path || text.String() != "" {
		t.Errorf("%q, %s", got, text)
	}
	if err := os.Remove(path + lockSuffix); err != nil {
		t.Fatal(err)
	}
	if got := inheritLock(int(lock.Fd()), log); got != "" || !strings.Contains(text.String(), "was removed") || !strings.Contains(text.String(), "lock="+path+lockSuffix) {
		t.Errorf("%q, %s", got, text)
	}
}

// Root, who has no need to own the directory, is told what to do instead.
func TestTheLockOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // another user is not permitted to look
	}
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "session")
	const nobody = 65534
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path+lockSuffix, nil, 0o600),
		os.Chown(dir, nobody, nobody), os.Chown(path+lockSuffix, nobody, nobody))
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockSessionFile(t.Context(), path, 0)
	const want = "of user 65534: run this command as that user"
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "chown") {
		t.Error(err)
	}
}
