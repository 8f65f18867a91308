package config

import (
	"path/filepath"
	"strings"
	"time"
)

// WatchdogDevice configures the device that resets this host if the work outlives its lease. It has nothing to do with the watchdog
// of the elector.
type WatchdogDevice struct {
	Mode   string `yaml:"mode" oneof:"off, automatic, required" default:"off" doc:"Whether a watchdog device resets this host if the leader-only work could outlive its lease: off, automatic (where there is a device that fits the lease) or required (without one this host does not lead). See docs/watchdog-device.md."`
	Device string `yaml:"device" default:"/dev/watchdog" doc:"The device. One process at a time can have it open, so one zkelectd on a host, with all its groups."`
	// Timeout is 0 for the longest that fits.
	Timeout time.Duration `yaml:"timeout" doc:"The device's timeout, in whole seconds. With 0s: the longest that fits the lease, which is 2s for the default session timeout."`
	// Margin is how much later than after Timeout the host may be reset.
	Margin time.Duration `yaml:"margin" min:"50ms" default:"500ms" doc:"How much later than after its timeout the device may have reset the host: for timers that count coarsely, and for the reset itself."`
}

// The modes of a watchdog device.
const (
	DeviceOff       = "off"
	DeviceAutomatic = "automatic"
	DeviceRequired  = "required"
)

// Used reports whether the device is to be used.
func (w WatchdogDevice) Used() bool { return w.Mode != DeviceOff && w.Mode != "" }

func (w WatchdogDevice) check(report func(string, string, ...any)) {
	if !strings.HasPrefix(w.Device, "/dev/") || filepath.Clean(w.Device) != w.Device {
		report("watchdog_device.device", "%q is not the clean path of a device, such as /dev/watchdog0", w.Device)
	}
	if w.Timeout != 0 && (w.Timeout < time.Second || w.Timeout%time.Second != 0) {
		report("watchdog_device.timeout", "%s is not a number of seconds: the kernel's watchdog devices count in seconds", w.Timeout)
	}
}
