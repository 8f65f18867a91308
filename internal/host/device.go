package host

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/watchdogdev"
	"zkelectd/internal/work/systemd"
)

// Timing of the checks of the watchdog device.
const (
	deviceRetry      = 15 * time.Second // between two checks of a device that cannot be used
	deviceAskTimeout = 2 * time.Second  // for systemd to say whether it uses a device
)

// errDeviceUnknown is why a host that requires a watchdog device does not lead at first.
var errDeviceUnknown = errors.New("it has not been checked yet")

// device is what the host knows of its watchdog device, which the guard opens. It outlives sessions, and is safe for
// concurrent use.
type device struct {
	config config.WatchdogDevice
	lease  time.Duration // election.lease
	guard  Guard
	log    *slog.Logger
	// setUnusable records why the host must not lead; nil if it may.
	setUnusable func(error)

	mu      sync.Mutex
	reset   *guard.ResetSpec // nil if the device does not fit the lease, or before the first session
	problem error            // why the device cannot be used; nil if it can
	state   guard.DeviceState
	view    *status.WatchdogDevice
}

// newDevice returns nil if no device is configured.
func newDevice(c config.Config, g Guard, log *slog.Logger, setUnusable func(error)) *device {
	if !c.Device.Used() {
		return nil
	}
	d := &device{config: c.Device, lease: c.Election.Lease, guard: g, log: log, setUnusable: setUnusable}
	d.update(errDeviceUnknown)
	return d
}

// fit computes how the device fits the leases of a session, and has it checked.
func (d *device) fit(base time.Duration) {
	if d == nil {
		return
	}
	r, err := d.plan(base)
	d.mu.Lock()
	d.reset = nil
	if err == nil {
		d.reset = &guard.ResetSpec{
			Device: guard.DeviceSpec{Path: d.config.Device, Timeout: r.Timeout, Interval: r.Interval,
				NoWayOut: d.config.Mode == config.DeviceRequired},
			Within: r.Within, Required: d.config.Mode == config.DeviceRequired,
		}
	}
	d.mu.Unlock()
	if err != nil {
		d.update(err)
		return
	}
	d.check(true)
}

// plan chooses the timeout: the longest that both the lease and the device allow.
func (d *device) plan(base time.Duration) (cluster.Reset, error) {
	b, err := cluster.NewBudget(base, d.lease, 0)
	if err != nil {
		return cluster.Reset{}, err
	}
	r, err := b.NewReset(0)
	if err != nil {
		return r, err
	}
	info, err := watchdogdev.Read(d.config.Device)
	switch {
	case err != nil:
		return r, err
	case info.Min > r.Timeout:
		return b.NewReset(info.Min)
	case info.Max != 0 && info.Max < r.Timeout:
		return b.NewReset(info.Max)
	}
	return r, nil
}

// check has the guard open the device if it fits, and if it could not be used, or always is set.
func (d *device) check(always bool) {
	d.mu.Lock()
	r, failed := d.reset, d.problem != nil
	d.mu.Unlock()
	if r != nil && (failed || always) {
		d.guard.CheckDevice(r.Device)
	}
}

// run follows what the guard reports about the device, and has it checked again while it cannot be used, until ctx
// ends.
func (d *device) run(ctx context.Context) {
	if d == nil {
		return
	}
	t := time.NewTicker(deviceRetry)
	defer t.Stop()
	for {
		select {
		case <-d.guard.DeviceNews():
			d.judge(ctx, d.guard.DeviceState())
		case <-t.C:
			d.check(false)
		case <-ctx.Done():
			return
		}
	}
}

// judge records what the guard has found.
func (d *device) judge(ctx context.Context, s guard.DeviceState) {
	var err error
	switch {
	case s.Busy:
		err = busyError(ctx, s)
	case s.Error != "":
		err = errors.New(s.Error)
	}
	d.mu.Lock()
	d.state = s
	fits := d.reset != nil
	d.mu.Unlock()
	if fits {
		d.update(err)
	}
}

// busyError returns who uses the device, which the guard may not be allowed to see.
func busyError(ctx context.Context, s guard.DeviceState) error {
	ctx, cancel := context.WithTimeout(ctx, deviceAskTimeout)
	defer cancel()
	if used, err := systemd.UsesWatchdog(ctx); err == nil && used {
		return &watchdogdev.BusyError{Path: s.Info.Path, Holder: watchdogdev.Systemd}
	}
	return errors.New(s.Error)
}

// update records whether the device can be used, logs a change, and publishes it.
func (d *device) update(err error) {
	d.mu.Lock()
	before := d.view
	d.problem = err
	d.view = d.describe()
	now, info := *d.view, d.state.Info
	d.mu.Unlock()
	if before != nil && before.State == now.State && before.Reason == now.Reason {
		return
	}
	required := d.config.Mode == config.DeviceRequired
	log := d.log.With("device", d.config.Device)
	switch {
	case before == nil: // not checked yet
	case err == nil && before.State != status.DeviceArmed && now.State != status.DeviceArmed:
		log.Info("the watchdog device can be used", "identity", info.Identity, "timeout", info.Timeout,
			"reset_after_lease", now.ResetAfterLease)
		for _, text := range info.Warnings {
			log.Warn("the watchdog device has a weakness", "reason", text)
		}
	case err != nil && required:
		log.Error("the watchdog device, which is required, cannot be used: this host does not lead", "reason", err)
	case err != nil:
		log.Warn("the watchdog device is not used: if this host stands still, nothing resets it", "reason", err)
	}
	if required {
		d.setUnusable(err)
	}
}

// describe returns the view. The caller must hold mu.
func (d *device) describe() *status.WatchdogDevice {
	v := &status.WatchdogDevice{Device: d.config.Device, Required: d.config.Mode == config.DeviceRequired,
		Identity: d.state.Info.Identity, Warnings: d.state.Info.Warnings}
	if d.reset != nil {
		v.Timeout, v.ResetAfterLease = cluster.Duration(d.reset.Device.Timeout), cluster.Duration(d.reset.Within)
	}
	switch {
	case d.problem != nil:
		v.State, v.Reason = status.DeviceUnusable, d.problem.Error()
	case d.state.Armed:
		v.State = status.DeviceArmed
	default:
		v.State = status.DeviceReady
	}
	return v
}

// View returns what is shown of the device; nil if none is configured.
func (d *device) View() *status.WatchdogDevice {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view
}

// spec returns how the device covers work that starts now; nil if the work runs without it.
func (d *device) spec() (*guard.ResetSpec, error) {
	if d == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reset != nil {
		r := *d.reset
		return &r, nil // the guard tries to arm it, whatever the last check has found
	}
	if d.config.Mode == config.DeviceRequired {
		return nil, deviceError(cmp.Or(d.problem, errDeviceUnknown))
	}
	return nil, nil
}

// deviceError says that work cannot start, or that the host does not lead, without the device.
func deviceError(err error) error {
	return errors.New("watchdog_device.mode is required, but the device cannot be used: " + err.Error())
}
