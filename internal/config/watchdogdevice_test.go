package config

import "testing"

// Each wrong setting of the watchdog device is reported under its key.
func TestWatchdogDeviceIsChecked(t *testing.T) {
	good := WatchdogDevice{Mode: DeviceRequired, Device: "/dev/watchdog"}
	for want, change := range map[string]func(*WatchdogDevice){
		"":                       func(*WatchdogDevice) {},
		"watchdog_device.mode":   func(w *WatchdogDevice) { w.Mode = "on" },
		"watchdog_device.device": func(w *WatchdogDevice) { w.Device = "/dev/../etc/passwd" },
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
