package host

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/watchdogdev"
)

// deviceGuard is a guard that only checks devices.
type deviceGuard struct {
	Guard
	checks []guard.DeviceSpec
}

func (g *deviceGuard) CheckDevice(s guard.DeviceSpec) { g.checks = append(g.checks, s) }

// newTestDevice returns a device whose path exists, and how often the host was said to be unusable.
func newTestDevice(t *testing.T, mode string) (*device, *deviceGuard, *error) {
	t.Helper()
	unusable := new(error)
	g := new(deviceGuard)
	c := config.Config{Device: config.WatchdogDevice{Mode: mode, Device: "/dev/null"}}
	return newDevice(c, g, slog.New(slog.DiscardHandler), func(err error) { *unusable = err }), g, unusable
}

// A host that requires a device leads only while the device can be used; with the mode automatic the work runs without it.
func TestDeviceModes(t *testing.T) {
	for _, mode := range []string{config.DeviceRequired, config.DeviceAutomatic} {
		d, g, unusable := newTestDevice(t, mode)
		required := mode == config.DeviceRequired
		expect := func(what, state string, refused bool) {
			t.Helper()
			if v := d.View(); v.State != state || (v.Reason == "") != (state != status.DeviceUnusable) {
				t.Errorf("%s, %s: %+v", mode, what, v)
			}
			if (*unusable != nil) != (refused && required) {
				t.Errorf("%s, %s: the host is unusable: %v", mode, what, *unusable)
			}
		}
		if _, err := d.spec(); (err != nil) != required {
			t.Errorf("%s: before the first check: %v", mode, err)
		}
		d.update(errDeviceUnknown)
		expect("not checked", status.DeviceUnusable, true)
		d.fit(4 * time.Second) // too short
		expect("a lease that is too short", status.DeviceUnusable, true)
		if len(g.checks) != 0 {
			t.Errorf("%+v", g.checks)
		}
		d.fit(6 * time.Second)
		if len(g.checks) != 1 || g.checks[0].Timeout != 2*time.Second || g.checks[0].NoWayOut != required {
			t.Errorf("%+v", g.checks)
		}
		expect("not checked for this lease", status.DeviceUnusable, true)
		d.judge(t.Context(), guard.DeviceState{})
		expect("checked", status.DeviceReady, false)
		if r, err := d.spec(); err != nil || r == nil || r.Within != 400*time.Millisecond || r.Required != required {
			t.Errorf("%+v, %v", r, err)
		}
		d.judge(t.Context(), guard.DeviceState{Armed: true})
		expect("armed", status.DeviceArmed, false)
		d.judge(t.Context(), guard.DeviceState{Error: "no"})
		expect("failed", status.DeviceUnusable, true)
		if d.check(false); len(g.checks) != 2 {
			t.Error("not checked again")
		}
		if r, err := d.spec(); err != nil || r == nil {
			t.Errorf("the guard does not try: %v", err) // it refuses the work if the device is required
		}
		d.fit(4 * time.Second)
		if r, err := d.spec(); r != nil || (err != nil) != required {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A device must fit the lease that is configured: the host is reset within its kill margin.
func TestDeviceFitsTheConfiguredLease(t *testing.T) {
	for lease, timeout := range map[time.Duration]time.Duration{0: 8 * time.Second, 3 * time.Second: 2 * time.Second, 900 * time.Millisecond: 0} {
		d, g, _ := newTestDevice(t, config.DeviceRequired)
		d.lease = lease
		d.fit(20 * time.Second)
		var got time.Duration
		if len(g.checks) > 0 {
			got = g.checks[0].Timeout
		}
		if got != timeout {
			t.Errorf("a lease of %s: a timeout of %s, want %s", lease, got, timeout)
		}
	}
}

// Nothing happens without a device.
func TestNoDevice(t *testing.T) {
	d, _, _ := newTestDevice(t, config.DeviceOff)
	d.fit(6 * time.Second)
	d.run(t.Context())
	if r, err := d.spec(); d != nil || r != nil || err != nil || d.View() != nil {
		t.Errorf("%+v", d)
	}
}

// A device that is used by another process is named, also where systemd cannot be asked.
func TestBusyDevice(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := guard.DeviceState{Busy: true, Error: (&watchdogdev.BusyError{Path: "/dev/watchdog"}).Error()}
	if err := busyError(ctx, s); !strings.Contains(err.Error(), "RuntimeWatchdogSec") {
		t.Error(err)
	}
}

// The host's health names the device, after its own probe.
func TestHealthWithoutDevice(t *testing.T) {
	h := newHealth(config.Config{}, slog.New(slog.DiscardHandler))
	h.setDevice(errors.New("no driver"))
	if why := h.UnhealthyReason(); !strings.Contains(why, "watchdog_device.mode is required") || !strings.Contains(why, "no driver") {
		t.Error(why)
	}
	h.setUnhealthy(errors.New("ill"))
	if why := h.UnhealthyReason(); why != "ill" {
		t.Error(why)
	}
	h.setUnhealthy(nil)
	h.setDevice(nil)
	if why := h.UnhealthyReason(); why != "" {
		t.Error(why)
	}
}
