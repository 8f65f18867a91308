package watchdogdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeSysfs describes /dev/null as a watchdog device.
func fakeSysfs(t *testing.T, attributes map[string]string) {
	t.Helper()
	dir := t.TempDir()
	target := filepath.Join(dir, "devices/watchdog0")
	if err := errors.Join(os.MkdirAll(target, 0o755), os.MkdirAll(filepath.Join(dir, "dev/char"), 0o755), os.Symlink(target, filepath.Join(dir, "dev/char/1:3"))); err != nil {
		t.Fatal(err)
	}
	for name, value := range attributes {
		if err := os.WriteFile(filepath.Join(target, name), []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	original := sysfs
	sysfs = dir
	t.Cleanup(func() { sysfs = original })
}

// What the kernel reports is read without opening the device, which would start its timer.
func TestRead(t *testing.T) {
	fakeSysfs(t, map[string]string{
		"identity": "i6300ESB timer", "nowayout": "1", "state": "active", "timeout": "30", "min_timeout": "1", "max_timeout": "2046", "pretimeout": "5",
	})
	info, err := Read("/dev/null")
	want := Info{Path: "/dev/null", Identity: "i6300ESB timer", NoWayOut: true, Active: true, Timeout: 30 * time.Second, Min: time.Second, Max: 2046 * time.Second, Pretimeout: 5 * time.Second}
	if err != nil || info.Identity != want.Identity || info.NoWayOut != want.NoWayOut || info.Active != want.Active ||
		info.Timeout != want.Timeout || info.Min != want.Min || info.Max != want.Max || info.Pretimeout != want.Pretimeout {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := Read("/dev/nothing"); err == nil || !strings.Contains(err.Error(), "load the driver") {
		t.Errorf("%v", err)
	}
	if _, err := Read("/proc/self/exe"); err == nil || !strings.Contains(err.Error(), "is not a device") {
		t.Errorf("%v", err)
	}
}

// A device that cannot be stopped, or that is none, is refused; the former before it is opened.
func TestOpenRefuses(t *testing.T) {
	fakeSysfs(t, map[string]string{"nowayout": "1"})
	if _, _, err := Open("/dev/null", time.Second, Use{}); err == nil || !strings.Contains(err.Error(), "nowayout=0") {
		t.Errorf("%v", err)
	}
	if d, _, err := Open("/dev/null", time.Second, Use{NoWayOut: true}); err == nil || d != nil || !strings.Contains(err.Error(), "is not a watchdog device") {
		t.Errorf("%v", err)
	}
}

// The process that has a device open is found, whatever name of the device it has used.
func TestHolder(t *testing.T) {
	if who := Holder("/dev/kmsg"); who != "" && !strings.Contains(who, "process") {
		t.Errorf("%q", who)
	}
	f, err := os.Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	alias := filepath.Join("/dev", "zkelectd-test-full")
	if err := unix.Mknod(alias, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err != nil {
		alias = "/dev/full" // not permitted here
	} else {
		defer os.Remove(alias)
	}
	if who := Holder(alias); !strings.Contains(who, "process ") {
		t.Errorf("%q", who)
	}
}

// A device whose timer runs is left alone: the next guard must not save the host from the reset that work needs which the last one has
// left behind.
func TestRunningDeviceIsLeftAlone(t *testing.T) {
	fakeSysfs(t, map[string]string{"nowayout": "0", "state": "active"})
	if _, info, err := Open("/dev/null", time.Second, Use{NoWayOut: true}); !errors.Is(err, unix.EBUSY) || !info.Active {
		t.Errorf("%v", err)
	}
	if _, _, err := Open("/dev/null", time.Second, Use{Running: true}); errors.Is(err, unix.EBUSY) {
		t.Errorf("%v", err)
	}
	for holder, want := range map[string]string{"": "about to be reset", Systemd: "RuntimeWatchdogSec=off"} {
		if err := (&BusyError{"/dev/watchdog", holder, true}); !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}
