package guard

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/watchdogdev"
)

// DeviceSpec says how to use a watchdog device.
type DeviceSpec struct {
	Path    string        `json:"path"`
	Timeout time.Duration `json:"timeout"`
	// Interval is the time between two pets.
	Interval time.Duration `json:"interval"`
	// NoWayOut permits a device that cannot be stopped.
	NoWayOut bool `json:"nowayout,omitempty"`
	// Running permits a device whose timer runs: one that this process itself could not stop.
	Running bool `json:"-"`
}

// DeviceState is what the guard has found out about a watchdog device.
type DeviceState struct {
	Info watchdogdev.Info `json:"info"`
	// Armed reports whether the guard has the device open.
	Armed bool `json:"armed,omitempty"`
	// Error says why the device cannot be used, or that it could not be petted; empty if there is none.
	Error string `json:"error,omitempty"`
	// Busy reports whether another process has the device open, as far as is known.
	Busy bool `json:"busy,omitempty"`
}

// resetDevice is an open watchdog device.
type resetDevice interface {
	Pet() error
	SetTimeout(watchdogdev.Info, time.Duration) error
	Close() error // stops it
}

// openDevice opens a watchdog device.
func openDevice(s DeviceSpec) (resetDevice, watchdogdev.Info, error) {
	d, info, err := watchdogdev.Open(s.Path, s.Timeout, watchdogdev.Use{NoWayOut: s.NoWayOut, Running: s.Running})
	if err != nil {
		return nil, info, err // not d, which is a nil pointer
	}
	return d, info, nil
}

// petFreely is the limit while all work is dead.
const petFreely = time.Duration(math.MaxInt64)

// finalLead is how long before the limit the last pet is made, so that it is not late.
const finalLead = 20 * time.Millisecond

// petter pets the watchdog device, in a thread of its own: a driver may block, and a kill must not wait for it. It pets
// only until a limit that the guard sets, and reads the clock before each pet. So when the guard, this thread, or the
// whole host stands still, the host is reset at most the device's timeout after the limit.
type petter struct {
	open   func(DeviceSpec) (resetDevice, watchdogdev.Info, error)
	now    func() time.Duration // CLOCK_BOOTTIME
	limit  atomic.Int64         // on that clock: see setLimit
	wanted atomic.Pointer[deviceOrder]
	result atomic.Pointer[deviceResult]
	kick   chan struct{} // there is a new limit or order
	news   chan struct{} // there is a new result
	quit   chan struct{}
	done   chan struct{}
	timer  *boottime.Timer

	// The thread owns the following.
	order    *deviceOrder // the last one that was carried out
	device   resetDevice  // nil while it is closed
	state    DeviceState
	interval time.Duration
	longest  time.Duration // the shortest timeout of all orders since it was opened, which it must have
	lastPet  time.Duration // when the last attempt to pet was over
}

// deviceOrder is what the guard wants of the device. The newest one replaces those that were not carried out.
type deviceOrder struct {
	number int
	spec   *DeviceSpec // nil to stop the device
	check  bool        // stop it again at once
}

// deviceResult answers an order: resetBy is when the host would be reset if there were no further pet, at the latest.
type deviceResult struct {
	number  int
	state   DeviceState
	resetBy time.Duration
}

func newPetter() (*petter, error) {
	t, err := boottime.NewTimer()
	if err != nil {
		return nil, err
	}
	p := &petter{
		open: openDevice, now: boottime.Now, kick: make(chan struct{}, 1), news: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}), timer: t,
	}
	p.limit.Store(int64(petFreely))
	return p, nil
}

// setLimit sets until when the device may be petted. It neither waits nor allocates.
func (p *petter) setLimit(at time.Duration) {
	if time.Duration(p.limit.Swap(int64(at))) != at {
		wake(p.kick)
	}
}

// submit has an order carried out; a result with its number follows.
func (p *petter) submit(o *deviceOrder) {
	p.wanted.Store(o)
	wake(p.kick)
}

// run carries out orders and pets until quit is closed. Then it stops the device, unless work lives.
func (p *petter) run() {
	defer close(p.done)
	runtime.LockOSThread()
	for {
		if o := p.wanted.Load(); o != nil && o != p.order {
			p.order = o
			p.carryOut(*o)
		}
		p.timer.Set(p.petIfDue())
		select {
		case <-p.kick:
		case <-p.timer.C:
		case <-p.quit:
			p.stop()
			p.timer.Close()
			return
		}
	}
}

// carryOut opens or stops the device, and reports the result.
func (p *petter) carryOut(o deviceOrder) {
	if o.spec != nil {
		p.arm(*o.spec)
	}
	if o.spec == nil || o.check && p.state.Armed {
		p.stop()
	}
	p.report()
}

// report makes the state known to the guard.
func (p *petter) report() {
	p.result.Store(&deviceResult{number: p.order.number, state: p.state, resetBy: p.lastPet + p.state.Info.Timeout})
	wake(p.news)
}

// arm opens the device. If it is open, it keeps its timeout, unless that is longer than this order's.
func (p *petter) arm(s DeviceSpec) {
	if p.device != nil {
		p.interval, p.longest = min(p.interval, s.Interval), min(p.longest, s.Timeout)
		p.pet()
		return
	}
	d, info, err := p.open(s)
	p.state = DeviceState{Info: info}
	if err != nil {
		p.fail(err)
		return
	}
	p.device, p.longest, p.interval, p.lastPet = d, s.Timeout, s.Interval, p.now()
	p.state.Armed = true
}

// fail records an error.
func (p *petter) fail(err error) {
	p.state.Error, p.state.Busy = err.Error(), errors.Is(err, syscall.EBUSY)
}

// petIfDue pets the device if it is time to, and returns when to look again; 0 if only after an order or a new limit.
func (p *petter) petIfDue() time.Duration {
	if due := p.nextPet(); due == 0 || p.now() < due {
		return due
	}
	failed, timeout := p.state.Error, p.state.Info.Timeout
	p.pet()
	if p.state.Error != failed || p.state.Info.Timeout != timeout {
		p.report()
	}
	return p.nextPet()
}

// nextPet returns when the next pet is due: after the interval, or just before the limit; 0 if the last one was made.
func (p *petter) nextPet() time.Duration {
	due, limit := p.lastPet+p.interval, time.Duration(p.limit.Load())
	switch {
	case p.device == nil || p.now() > limit:
		return 0
	case due <= limit:
		return due
	case p.lastPet >= limit-finalLead:
		return 0
	}
	return limit - finalLead
}

// pet pets the device unless the limit has passed. If its timeout is too long, it is set first, which restarts the
// timer as well. The clock is read last, right before each call.
func (p *petter) pet() {
	var failed error
	shorten := p.state.Info.Timeout > p.longest && p.mayPet()
	if shorten {
		failed = p.device.SetTimeout(p.state.Info, p.longest)
		p.lastPet = p.now()
	}
	if !p.mayPet() {
		return
	}
	err := p.device.Pet()
	p.lastPet = p.now()
	p.state.Error = ""
	switch {
	case err != nil:
		p.state.Error = fmt.Sprintf("cannot pet %s: %v", p.state.Info.Path, err)
	case failed != nil:
		p.state.Error = failed.Error()
	case shorten:
		p.state.Info.Timeout = p.longest
	}
}

// mayPet reports whether the limit has not passed.
func (p *petter) mayPet() bool { return p.now() <= time.Duration(p.limit.Load()) }

// stop stops the device if all work is dead. A device that does not stop stays open and is petted, else it would reset
// the host.
func (p *petter) stop() {
	if p.device == nil || p.state.Info.NoWayOut || time.Duration(p.limit.Load()) != petFreely {
		return
	}
	if err := p.device.Close(); err != nil {
		p.state.Error = err.Error()
		p.reopen()
		return
	}
	p.device, p.state.Armed = nil, false
}

// reopen opens a device again that goes on although it was closed.
func (p *petter) reopen() {
	d, _, err := p.open(DeviceSpec{Path: p.state.Info.Path, Timeout: p.state.Info.Timeout,
		Interval: p.interval, NoWayOut: true, Running: true})
	if err != nil {
		p.device, p.state.Armed = nil, false
		return
	}
	p.device, p.state.Info.NoWayOut, p.lastPet = d, true, p.now()
}

// exitDeviceTimeout is how long the guard waits at its end for a device that is being stopped.
const exitDeviceTimeout = time.Second

// close ends the thread. It reports whether the thread ended in time: a driver may block.
func (p *petter) close() bool {
	close(p.quit)
	t := time.NewTimer(exitDeviceTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}
