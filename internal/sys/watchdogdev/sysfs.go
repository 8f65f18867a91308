package watchdogdev

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Paths of the kernel's files; variables for the tests.
var (
	sysfs = "/sys"
	proc  = "/proc"
)

// The device number of /dev/watchdog, which is another name of watchdog0.
const (
	miscMajor     = 10
	watchdogMinor = 130
)

// Read describes a device without opening it, which would start its timer. What the kernel does not report is missing.
func Read(path string) (Info, error) {
	info := Info{Path: path}
	stat, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return info, fmt.Errorf("there is no %s: load the driver of the watchdog (i6300esb in a virtual machine, "+
			"iTCO_wdt, sp5100_tco, ipmi_watchdog, ...), "+
			"or pass the device on to the container", path)
	case err != nil:
		return info, err
	case stat.Mode()&os.ModeCharDevice == 0:
		return info, fmt.Errorf("%s is not a device", path)
	}
	dir := classDir(stat)
	info.Identity = attribute(dir, "identity")
	info.NoWayOut = attribute(dir, "nowayout") == "1"
	state := attribute(dir, "state")
	info.Known, info.Active = state != "", state == "active"
	for name, field := range map[string]*time.Duration{"timeout": &info.Timeout, "min_timeout": &info.Min,
		"max_timeout": &info.Max, "pretimeout": &info.Pretimeout} {
		n, _ := strconv.Atoi(attribute(dir, name)) // 0 if it is unknown
		*field = time.Duration(n) * time.Second
	}
	return info, nil
}

// classDir returns the directory of a device below /sys/class/watchdog.
func classDir(stat os.FileInfo) string {
	sys, ok := stat.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	major, minor := unix.Major(sys.Rdev), unix.Minor(sys.Rdev)
	if major == miscMajor && minor == watchdogMinor {
		return filepath.Join(sysfs, "class/watchdog/watchdog0")
	}
	return filepath.Join(sysfs, "dev/char", fmt.Sprintf("%d:%d", major, minor))
}

func attribute(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Holder describes the process that has the device open; empty if none is found, or if this process may not look. Names
// of the same device count.
func Holder(path string) string {
	want, err := deviceNumber(path)
	if err != nil {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/[0-9]*"))
	if err != nil {
		return ""
	}
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(target, "/dev/") {
			continue
		}
		if n, err := deviceNumber(file); err == nil && n == want {
			dir := filepath.Dir(filepath.Dir(file))
			return fmt.Sprintf("%s (process %s)", cmp.Or(attribute(dir, "comm"), "a process"), filepath.Base(dir))
		}
	}
	return ""
}

// deviceNumber returns what identifies a device: its minor number among the watchdogs.
func deviceNumber(path string) (string, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if stat.Mode()&os.ModeCharDevice == 0 {
		return "", fmt.Errorf("%s is not a device", path)
	}
	dir := classDir(stat)
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		return resolved, nil
	}
	return dir, nil
}
