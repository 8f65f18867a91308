package guard

import (
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/sys/boottime"
)

// ResetSpec makes work run only while the watchdog device is armed.
type ResetSpec struct {
	Device DeviceSpec `json:"device"`
	// Within is how long after the end of the lease the host must have been reset, unless the work is dead.
	Within time.Duration `json:"within"`
	// Required refuses the work if the device cannot be armed; otherwise the work runs without it.
	Required bool `json:"required,omitempty"`
}

// valid reports whether the times make sense; an interval of 0 would keep a processor busy.
func (s *DeviceSpec) valid() bool { return s.Timeout >= time.Second && s.Interval >= time.Millisecond }

func (s *ResetSpec) valid() bool { return s == nil || s.Device.valid() && s.Within > 0 }

// armTimeout is how long arming the device may take; shorter than startTimeout.
const armTimeout = 4 * time.Second

// errDeviceHangs is returned if the driver does not answer.
var errDeviceHangs = fmt.Errorf("the watchdog device does not answer within %s: its driver hangs", armTimeout)

// device is the guard's side of the petter.
type device struct {
	petter   *petter       // nil before the first use
	news     chan struct{} // the petter's; nil before the first use
	number   int           // of the last order
	inUse    bool          // it is to stay armed
	reported *deviceResult // what toDaemon was told
	toDaemon *daemon
}

// orderDevice submits an order for the device.
func (g *guard) orderDevice(o deviceOrder) error {
	if g.device.petter == nil {
		p, err := newPetter()
		if err != nil {
			return err
		}
		g.startPetter(p)
	}
	g.device.number++
	o.number = g.device.number
	g.device.petter.submit(&o)
	return nil
}

func (g *guard) startPetter(p *petter) {
	g.device.petter, g.device.news = p, p.news
	go p.run() // ends with closeDevice
}

// checkDevice opens the device to find out whether it works, and stops it again unless work needs it.
func (g *guard) checkDevice(s *DeviceSpec) error {
	if s == nil || !s.valid() {
		return fmt.Errorf("%w: a device message without a device, or without its times", errProtocol)
	}
	if err := g.orderDevice(deviceOrder{spec: s, check: !g.device.inUse}); err != nil {
		g.log.Error("cannot use a watchdog device", "err", err)
	}
	return nil
}

// armDevice starts to arm the device for work that is being prepared, whose lease limits the pets from here on.
// deviceArmed follows.
func (g *guard) armDevice(w *work) error {
	if w.spec.Reset == nil || w.hookDeadline != 0 {
		return nil
	}
	if !g.hasLease(w.leadership) {
		return errNoLease
	}
	w.arming, w.armBy = true, boottime.Now()+armTimeout
	g.limitPets()
	if err := g.orderDevice(deviceOrder{spec: &w.spec.Reset.Device}); err != nil {
		return err
	}
	g.device.inUse, w.order = true, g.device.number
	return nil
}

// limitPets sets until when the device may be petted: for each work, so that the host is reset in time after the end of
// the lease, and never after that end; without a limit once all work is dead.
func (g *guard) limitPets() {
	if g.device.petter == nil {
		return
	}
	limit := petFreely
	for _, l := range g.leaderships {
		if w := l.work; w != nil && w.needsDevice() {
			limit = min(limit, w.petUntil())
		}
	}
	g.device.petter.setLimit(limit)
}

// needsDevice reports whether the host must be reset if the work outlives its lease.
func (w *work) needsDevice() bool { return w.spec.Reset != nil && w.hookDeadline == 0 }

// petUntil returns when the device may be petted the last time before the work is dead. A lease that was given up early
// limits the pets as before: what a successor waits for is the end of that lease.
func (w *work) petUntil() time.Duration {
	r := w.spec.Reset
	return w.leadership.lastLease + min(0, r.Within-r.Device.Timeout)
}

// resetBy returns when the host must have been reset, unless the work is dead.
func (w *work) resetBy() time.Duration { return w.leadership.lastLease + w.spec.Reset.Within }

// tendDevice lets works that wait for the device go on, tells the daemon what is new, and stops a device that nothing
// needs.
func (g *guard) tendDevice() {
	if g.device.petter == nil {
		return
	}
	result := g.device.petter.result.Load()
	for _, l := range g.leaderships {
		if w := l.work; w != nil && w.needsDevice() && !w.launched && !w.killing {
			g.continueArming(w, result)
		}
	}
	g.reportDevice(result)
	if g.device.inUse && !g.keepsDevice(result) {
		g.device.inUse = false
		g.orderDevice(deviceOrder{}) // cannot fail: there is a petter
	}
}

// continueArming prepares the work once the device is armed and would reset the host in time.
func (g *guard) continueArming(w *work, r *deviceResult) {
	armed := r != nil && r.number >= w.order
	tooLong := armed && r.state.Info.Timeout > w.spec.Reset.Device.Timeout // than what its pets are planned with
	switch {
	case !g.hasLease(w.leadership):
		g.refuse(w, errNoLease) // also if it was prepared: its lease would limit the pets for ever
	case !w.arming:
	case armed && (!r.state.Armed || tooLong && r.state.Error != ""):
		g.goWithoutDevice(w, errors.New(r.state.Error))
	case armed && !tooLong && r.resetBy <= w.resetBy():
		w.arming = false
		g.tryFinishPrepare(w)
	case past(w.armBy) && armed: // the last pet of the others was too late for this lease, which was not renewed since
		g.refuse(w, errNoLease)
	case past(w.armBy):
		g.goWithoutDevice(w, errDeviceHangs)
	}
}

// goWithoutDevice prepares work whose device cannot be armed, or refuses it.
func (g *guard) goWithoutDevice(w *work, err error) {
	if w.spec.Reset.Required {
		g.refuse(w, fmt.Errorf("watchdog_device.mode is required, but: %w", err))
		return
	}
	g.log.Warn("the work runs without the watchdog device: if this host stands still, nothing resets it", "group",
		w.leadership.name, "reason", err)
	w.arming, w.spec.Reset = false, nil
	g.tryFinishPrepare(w)
}

// keepsDevice reports whether the device has to stay armed: there is work, or there may soon be more under a lease.
func (g *guard) keepsDevice(r *deviceResult) bool {
	armed := r != nil && r.state.Armed
	for _, l := range g.leaderships {
		if w := l.work; w != nil && w.needsDevice() || armed && g.hasLease(l) {
			return true
		}
	}
	return false
}

// reportDevice tells the daemon of a new state of the device.
func (g *guard) reportDevice(r *deviceResult) {
	if r == nil || g.daemon == nil {
		return
	}
	if g.device.reported == r && g.device.toDaemon == g.daemon {
		return
	}
	g.device.reported, g.device.toDaemon = r, g.daemon
	g.sendToDaemon(message{Kind: kindDevice, DeviceState: &r.state})
}

// closeDevice stops the device at the end of the guard, unless work lives.
func (g *guard) closeDevice() {
	p := g.device.petter
	if p == nil {
		return
	}
	g.limitPets()
	closed := p.close()
	r := p.result.Load()
	switch {
	case r == nil || closed && p.device == nil:
	case time.Duration(p.limit.Load()) != petFreely:
		g.log.Error("work may still run: the watchdog device resets this host", "device", r.state.Info.Path, "timeout",
			r.state.Info.Timeout)
	default:
		g.log.Error("the watchdog device cannot be stopped, and resets this host unless another process pets it",
			"device", r.state.Info.Path,
			"timeout", r.state.Info.Timeout, "nowayout", r.state.Info.NoWayOut)
	}
}

// nextDeviceCheck returns when work that waits for the device has to be looked at; 0 for never.
func (w *work) nextDeviceCheck() time.Duration {
	switch {
	case w.launched || !w.needsDevice():
		return 0
	case w.arming:
		return earliest(w.armBy, max(1, w.leadership.lease()))
	}
	return max(1, w.leadership.lease())
}
