package config

import (
	"path/filepath"
	"strings"
)

// WatchdogDevice configures the device that resets this host if the work outlives its lease. It has nothing to do with the watchdog
// of the elector.
type WatchdogDevice struct {
	Mode   string `yaml:"mode" oneof:"off, automatic, required" default:"off" doc:"Whether a watchdog device resets this host if the leader-only work could outlive its lease: off, automatic (where there is a device that fits the lease) or required (without one this host does not lead). See docs/watchdog-device.md."`
	Device string `yaml:"device" default:"/dev/watchdog" doc:"The device. One process at a time can have it open, so one zkelectd on a host, with all its groups."`
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
}
