package hostcheck

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatAProcessMayUse(t *testing.T) {
	limits, err := Limits(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || limits.OpenFiles != files.Cur {
		t.Errorf("%d files, %d, %v", limits.OpenFiles, files.Cur, err)
	}
	page := make([]byte, os.Getpagesize())
	if unix.Mlock(page) == nil {
		defer unix.Munlock(page)
		if locked, _, err := Memory(os.Getpid()); err != nil || locked == 0 || locked > 1<<30 { // the address space that is reserved is larger
			t.Errorf("%d bytes are locked, %v", locked, err)
		}
	}
	if name, err := Scheduler(os.Getpid()); err != nil || name == "" {
		t.Errorf("%q, %v", name, err)
	}
	if count, most, err := Tasks(os.Getpid()); err == nil && (count == 0 || most == 0) {
		t.Errorf("%d tasks of %d", count, most)
	}
}
