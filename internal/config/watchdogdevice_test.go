package config

import (
	"fmt"
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
		w, got := good, ""
		change(&w)
		w.check(func(key, format string, args ...any) { got += key; _ = fmt.Sprintf(format, args...) })
		if got != want {
			t.Errorf("%+v: %q", w, got)
		}
	}
}
