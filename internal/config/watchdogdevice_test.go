package config

import (
	"testing"
	"time"
)

// Each wrong setting of the watchdog device is reported under its key.
func TestWatchdogDeviceIsChecked(t *testing.T) {
	good := WatchdogDevice{Mode: DeviceRequired, Device: "/dev/watchdog", Timeout: 2 * time.Second, Margin: 500 * time.Millisecond}
	for want, change := range map[string]func(*WatchdogDevice){
		"":                        func(*WatchdogDevice) {},
		"watchdog_device.mode":    func(w *WatchdogDevice) { w.Mode = "on" },
		"watchdog_device.device":  func(w *WatchdogDevice) { w.Device = "/dev/../etc/passwd" },
		"watchdog_device.timeout": func(w *WatchdogDevice) { w.Timeout = 1500 * time.Millisecond },
		"watchdog_device.margin":  func(w *WatchdogDevice) { w.Margin = 0 },
	} {
		c, got := defaults(), ""
		c.Device = good
		change(&c.Device)
		c.check(func(key, _ string, _ ...any) { got += key })
		if got != want {
			t.Errorf("%+v: %q", c.Device, got)
		}
	}
}
