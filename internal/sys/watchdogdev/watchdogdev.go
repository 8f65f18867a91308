// Package watchdogdev opens and describes a watchdog device: the hardware timer behind /dev/watchdog that resets the
// host unless a process pets it in time (Linux's watchdog API). It has nothing to do with package watchdog, which is
// part of the elector. It makes no decisions: package guard decides when the device may be petted.
package watchdogdev

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Info describes a device.
type Info struct {
	Path     string `json:"path"`
	Identity string `json:"identity,omitempty"`
	// Timeout is the driver's timeout. Min and Max limit it; 0 if they are unknown.
	Timeout time.Duration `json:"timeout,omitempty"`
	Min     time.Duration `json:"min,omitempty"`
	Max     time.Duration `json:"max,omitempty"`
	// Pretimeout is how long before the reset the driver warns, which may be a panic; 0 for none.
	Pretimeout time.Duration `json:"pretimeout,omitempty"`
	// NoWayOut reports whether the device cannot be stopped once it was opened.
	NoWayOut bool `json:"nowayout,omitempty"`
	// Active reports whether the timer runs: a process has the device open, or its last user has not stopped it.
	Active bool `json:"active,omitempty"`
	// Known reports whether the kernel says if it is.
	Known bool `json:"known,omitempty"`
	// Warnings say what the device does not do as it should, although it can be used.
	Warnings []string `json:"warnings,omitempty"`
}

// softwareIdentity is that of the driver softdog.
const softwareIdentity = "Software Watchdog"

// Systemd is the Holder of a device that systemd uses itself (RuntimeWatchdogSec=).
const Systemd = "systemd"

// BusyError reports that another process has the device open, as far as is known.
type BusyError struct {
	Path string
	// Holder describes the process; empty if this process may not find out.
	Holder string
	// Running says that the timer runs already. To open the device would save the host from a reset that may have a
	// reason: work whose guard was killed.
	Running bool
}

func (e *BusyError) Error() string {
	switch {
	case e.Holder == Systemd || strings.HasPrefix(e.Holder, "systemd ("):
		return fmt.Sprintf("%s is in use by systemd, which allows one user only: set RuntimeWatchdogSec=off in "+
			"/etc/systemd/system.conf.d/, run 'systemctl daemon-reexec', "+
			"or give systemd another device (WatchdogDevice=)", e.Path)
	case e.Holder != "":
		return fmt.Sprintf("%s is in use by %s, and a watchdog device has one user only: stop that, or name another "+
			"device in watchdog_device.device", e.Path, e.Holder)
	case e.Running:
		return fmt.Sprintf("the timer of %s runs already. Either another process has the device open (%s), or its "+
			"last user has died without stopping it, as a guard that was killed: "+
			"then this host is about to be reset, for work that it has left behind", e.Path, howToFind(e.Path))
	}
	return fmt.Sprintf("%s is in use by another process, and a watchdog device has one user only: %s", e.Path,
		howToFind(e.Path))
}

func howToFind(path string) string {
	return fmt.Sprintf("find it with 'fuser -v %s' as root. It may be systemd "+
		"('systemctl show -p RuntimeWatchdogUSec'; RuntimeWatchdogSec=off in "+
		"/etc/systemd/system.conf.d/ makes it release the device), the watchdog daemon, or another zkelectd on this "+
		"host: one zkelectd can have many groups", path)
}

func (e *BusyError) Unwrap() error { return syscall.EBUSY }

// Device is an open device, whose timer runs.
type Device struct {
	file *os.File
	fd   int
	path string
}

// Use says which devices may be opened.
type Use struct {
	// NoWayOut permits a device that cannot be stopped any more.
	NoWayOut bool
	// Running permits a device whose timer runs already.
	Running bool
}

// Open opens a device, sets its timeout, which it must then have exactly, and turns off its pretimeout. From then on
// the host is reset unless the device is petted or closed. The error names what is wrong; then the device is closed
// again.
func Open(path string, timeout time.Duration, use Use) (*Device, Info, error) {
	info, err := Read(path)
	if err != nil {
		return nil, info, err
	}
	if info.Active && !use.Running {
		return nil, info, &BusyError{path, Holder(path), true}
	}
	if info.NoWayOut && !use.NoWayOut {
		return nil, info, fmt.Errorf("%s cannot be stopped once it was opened (nowayout), so a stop of zkelectd "+
			"would reset this host: load its driver with nowayout=0, "+
			"or set watchdog_device.mode: required to use it nevertheless", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, info, openError(path, err)
	}
	// Fd makes the file blocking: a write then bypasses the poller
	d := &Device{file: file, fd: int(file.Fd()), path: path}
	if err := d.setUp(&info, timeout); err != nil {
		return nil, info, errors.Join(err, d.Close())
	}
	info.Active = true
	return d, info, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.EBUSY):
		return &BusyError{Path: path, Holder: Holder(path)}
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: give zkelectd's user access to it, see docs/watchdog-device.md", err)
	}
	return err
}

// setUp sets and reads back the timeout.
func (d *Device) setUp(info *Info, timeout time.Duration) error {
	support, err := unix.IoctlGetWatchdogInfo(d.fd)
	if err != nil {
		return fmt.Errorf("%s is not a watchdog device: %w", d.path, err)
	}
	info.Identity = unix.ByteSliceToString(support.Identity[:])
	info.Warnings = warnings(*info, support.Options)
	if support.Options&unix.WDIOF_SETTIMEOUT == 0 {
		info.Timeout = d.seconds(unix.WDIOC_GETTIMEOUT)
		if info.Timeout != timeout {
			return fmt.Errorf("the timeout of %s (%s) cannot be set: it is %s instead of %s; set it with the "+
				"driver's module parameter, or use another device",
				d.path, info.Identity, info.Timeout, timeout)
		}
	} else if err := d.SetTimeout(*info, timeout); err != nil {
		return err
	}
	info.Timeout = timeout
	if info.Pretimeout = d.seconds(unix.WDIOC_GETPRETIMEOUT); info.Pretimeout != 0 {
		unix.IoctlSetPointerInt(d.fd, unix.WDIOC_SETPRETIMEOUT, 0)
		if info.Pretimeout = d.seconds(unix.WDIOC_GETPRETIMEOUT); info.Pretimeout != 0 {
			return fmt.Errorf("the pretimeout of %s (%s) cannot be turned off: it acts %s before the timeout", d.path,
				info.Identity, info.Pretimeout)
		}
	}
	return nil
}

// SetTimeout sets the timeout, which the device must then have exactly, and may restart the timer.
func (d *Device) SetTimeout(info Info, timeout time.Duration) error {
	if err := unix.IoctlSetPointerInt(d.fd, unix.WDIOC_SETTIMEOUT, int(timeout/time.Second)); err != nil {
		return fmt.Errorf("%s (%s) does not take a timeout of %s: %w%s", d.path, info.Identity, timeout, err,
			limits(info))
	}
	if got := d.seconds(unix.WDIOC_GETTIMEOUT); got != timeout {
		return fmt.Errorf("%s (%s) has taken a timeout of %s instead of %s: use another device%s", d.path,
			info.Identity, got, timeout, limits(info))
	}
	return nil
}

// seconds returns a time that the driver knows; 0 if it does not.
func (d *Device) seconds(request uint) time.Duration {
	n, err := unix.IoctlGetInt(d.fd, request)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// warnings names the weaknesses of a device.
func warnings(info Info, options uint32) []string {
	var all []string
	if info.Identity == softwareIdentity {
		all = append(all, "softdog is software: it does not reset a host whose kernel has stopped; use the watchdog "+
			"of the hardware or of the hypervisor")
	}
	if options&unix.WDIOF_MAGICCLOSE == 0 {
		all = append(all, "its driver has no magic close: if the guard is killed, the device stops, and the "+
			"host is not reset")
	}
	if !info.Known {
		all = append(all, "the kernel does not report its state (CONFIG_WATCHDOG_SYSFS): if the guard is killed, the "+
			"next one may stop it while work lives")
	}
	if info.NoWayOut {
		all = append(all, "nowayout: once this host has led, a stop of zkelectd resets it")
	}
	return all
}

func limits(info Info) string {
	if info.Min == 0 && info.Max == 0 {
		return ""
	}
	return fmt.Sprintf(" (it takes %s to %s)", info.Min, info.Max)
}

// Pet restarts the timer. It allocates nothing, but may block in the driver.
func (d *Device) Pet() error { return unix.IoctlWatchdogKeepalive(d.fd) }

// magic is what makes a device stop when it is closed.
var magic = []byte("V")

// Close stops the timer, and closes the device. The error says that the timer still runs.
func (d *Device) Close() error {
	_, err := unix.Write(d.fd, magic)
	err = errors.Join(err, d.file.Close())
	if info, readErr := Read(d.path); readErr == nil && info.Active {
		err = errors.Join(err, fmt.Errorf("%s does not stop", d.path))
	}
	return err
}
