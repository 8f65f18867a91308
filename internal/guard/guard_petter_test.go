package guard

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/watchdogdev"
)

// fakeDevice records what a petter does with it.
type fakeDevice struct {
	now func() time.Duration

	mu      sync.Mutex
	pets    []time.Duration
	opened  int
	stopped int
	openErr error
	petErr  error
	setErr  error
	timeout time.Duration
	sticky  bool          // it goes on although it was stopped
	block   chan struct{} // open waits for it; nil to go on
	info    watchdogdev.Info
}

func (d *fakeDevice) open(s DeviceSpec) (resetDevice, watchdogdev.Info, error) {
	if d.block != nil {
		<-d.block
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	info := d.info
	info.Path, info.Timeout = s.Path, s.Timeout
	if d.openErr != nil {
		return nil, info, d.openErr
	}
	d.opened++
	d.timeout = s.Timeout
	return d, info, nil
}

func (d *fakeDevice) Pet() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pets = append(d.pets, d.now())
	return d.petErr
}

func (d *fakeDevice) SetTimeout(_ watchdogdev.Info, timeout time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.setErr == nil {
		d.timeout = timeout
	}
	return d.setErr
}

func (d *fakeDevice) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped++
	if d.sticky {
		return errors.New("it does not stop")
	}
	return nil
}

func (d *fakeDevice) lastPet() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pets) == 0 {
		return 0
	}
	return d.pets[len(d.pets)-1]
}

func (d *fakeDevice) counts() [3]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return [3]int{d.opened, len(d.pets), d.stopped}
}

var testDevice = DeviceSpec{Path: "/dev/watchdog", Timeout: 2 * time.Second, Interval: 200 * time.Millisecond}

// steppedPetter is a petter without its thread, whose clock the test sets.
type steppedPetter struct {
	*petter
	device *fakeDevice
	clock  time.Duration
}

func newSteppedPetter(t *testing.T) *steppedPetter {
	t.Helper()
	p, err := newPetter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.timer.Close)
	s := &steppedPetter{petter: p, clock: time.Hour}
	s.device = &fakeDevice{now: func() time.Duration { return s.clock }}
	p.now, p.open = s.device.now, s.device.open
	return s
}

func (s *steppedPetter) do(o deviceOrder) {
	s.order = &o
	s.carryOut(o)
}

// runUntil lets the thread's loop run until a time, waking late each time.
func (s *steppedPetter) runUntil(end, late time.Duration) {
	for {
		next := s.petIfDue()
		if next == 0 || next+late > end {
			s.clock = end
			s.petIfDue()
			return
		}
		s.clock = max(s.clock, next+late)
	}
}

// The device is petted at intervals, the last time just before the limit, and never after it, however late the thread wakes up.
func TestPetsEndAtTheLimit(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, 19 * time.Millisecond, 50 * time.Millisecond, time.Second, time.Minute} {
		s := newSteppedPetter(t)
		limit := s.clock + 1510*time.Millisecond
		s.setLimit(limit)
		s.do(deviceOrder{number: 1, spec: &testDevice})
		s.runUntil(s.clock+time.Hour, late)
		last := max(time.Hour, s.device.lastPet())
		if last > limit {
			t.Errorf("waking %s late: petted %s after the limit", late, last-limit)
		}
		if late < finalLead && last < limit-finalLead {
			t.Errorf("waking %s late: the last pet was %s before the limit", late, limit-last)
		}
		if n := len(s.device.pets); late == 0 && n != 8 {
			t.Errorf("%d pets", n)
		}
		if s.nextPet() != 0 {
			t.Errorf("waking %s late: a pet is due after the limit", late)
		}
		s.setLimit(s.clock + time.Second)
		s.runUntil(s.clock+500*time.Millisecond, 0)
		if !(s.device.lastPet() > limit) {
			t.Error("not petted after the limit was raised")
		}
	}
}

// Opening a device that is open does not pet it after the limit either, and the result says by when the host would be reset.
func TestArmingAgainRespectsTheLimit(t *testing.T) {
	s := newSteppedPetter(t)
	s.do(deviceOrder{number: 1, spec: &testDevice})
	opened := s.clock
	s.setLimit(s.clock + time.Second)
	s.clock += 2 * time.Second
	s.do(deviceOrder{number: 2, spec: &testDevice})
	if r := s.result.Load(); len(s.device.pets) != 0 || !r.state.Armed || r.number != 2 || r.resetBy != opened+testDevice.Timeout {
		t.Errorf("%v, %+v", s.device.pets, r)
	}
	s.setLimit(s.clock)
	s.do(deviceOrder{number: 3, spec: &testDevice})
	if r := s.result.Load(); !slices.Equal(s.device.pets, []time.Duration{s.clock}) || r.resetBy != s.clock+testDevice.Timeout {
		t.Errorf("%v, %+v", s.device.pets, r)
	}
}

// A later session may allow a shorter timeout than the device was opened with. That is set before its work starts, but
// never after the limit: it would restart the timer. The device keeps it, as other work may need it.
func TestArmingAgainShortensTheTimeout(t *testing.T) {
	s := newSteppedPetter(t)
	s.device.info.NoWayOut = true
	longer := testDevice
	longer.Timeout = 2 * testDevice.Timeout
	s.do(deviceOrder{number: 1, spec: &longer})
	s.do(deviceOrder{number: 2})
	opened := s.clock
	s.clock += 100 * time.Millisecond
	s.setLimit(s.clock - 1)
	s.do(deviceOrder{number: 3, spec: &testDevice})
	if r := s.result.Load(); s.device.timeout != longer.Timeout || r.resetBy != opened+longer.Timeout {
		t.Errorf("after the limit: the timeout is %s, reset %s after it was opened", s.device.timeout, r.resetBy-opened)
	}
	s.setLimit(petFreely)
	s.clock += testDevice.Interval
	s.petIfDue()
	if r := s.result.Load(); s.device.timeout != testDevice.Timeout || r.state.Info.Timeout != testDevice.Timeout ||
		r.resetBy != s.clock+testDevice.Timeout || len(s.device.pets) != 1 {
		t.Errorf("the timeout is %s, %+v", s.device.timeout, r)
	}
	s.do(deviceOrder{number: 4, spec: &longer})
	if s.device.timeout != testDevice.Timeout {
		t.Errorf("the timeout is %s again", s.device.timeout)
	}
}

// Work whose lease is too short for the timeout that the device keeps does not start as if that were shorter.
func TestDeviceThatKeepsALongerTimeout(t *testing.T) {
	for _, required := range []bool{true, false} {
		b, d := deviceGuard(t)
		b.extendBy(b.l, time.Hour)
		longer := testDevice
		longer.Timeout = 2 * testDevice.Timeout
		b.orderDevice(deviceOrder{spec: &longer})
		b.awaitDevice("the device to be armed", func() bool { return b.device.reported != nil })
		d.mu.Lock()
		d.setErr = errors.New("it keeps its timeout")
		d.mu.Unlock()
		b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(required)})
		w := b.l.work
		b.awaitDevice("the answer", func() bool { return b.l.work == nil || w.prepared })
		if refused := b.l.work == nil; refused != required || !refused && w.spec.Reset != nil {
			t.Errorf("required %t: refused %t, %+v", required, refused, w.spec.Reset)
		}
		if d.counts()[1] == 0 {
			t.Error("the device is not petted any more")
		}
	}
}

// A device is never stopped while work lives, whoever asks for it.
func TestDeviceIsNotStoppedWhileWorkLives(t *testing.T) {
	s := newSteppedPetter(t)
	s.do(deviceOrder{number: 1, spec: &testDevice})
	s.setLimit(s.clock + time.Hour)
	s.do(deviceOrder{number: 2})
	s.do(deviceOrder{number: 3, spec: &testDevice, check: true})
	if got := s.device.counts(); got[2] != 0 || !s.result.Load().state.Armed {
		t.Errorf("closed while work lives: %v", got)
	}
	s.setLimit(petFreely)
	s.do(deviceOrder{number: 4})
	if got := s.device.counts(); got[2] != 1 || s.result.Load().state.Armed {
		t.Errorf("not stopped: %v", got)
	}
}

// A device that cannot be stopped is petted on.
func TestDeviceThatDoesNotStopIsPettedOn(t *testing.T) {
	for name, noWayOut := range map[string]bool{"nowayout": true, "sticky": false} {
		s := newSteppedPetter(t)
		s.device.info.NoWayOut, s.device.sticky = noWayOut, !noWayOut
		s.do(deviceOrder{number: 1, spec: &testDevice, check: true})
		s.runUntil(s.clock+time.Minute, 0)
		if r := s.result.Load(); !r.state.Armed || s.clock-s.device.lastPet() > testDevice.Interval || len(s.device.pets) < 290 {
			t.Errorf("%s: %+v, %d pets", name, r.state, len(s.device.pets))
		}
	}
}

// Errors of the device are reported, and do not keep the thread busy.
func TestDeviceErrors(t *testing.T) {
	s := newSteppedPetter(t)
	s.device.openErr = &watchdogdev.BusyError{Path: "/dev/watchdog"}
	if s.do(deviceOrder{number: 1, spec: &testDevice}); !s.result.Load().state.Busy || s.result.Load().state.Armed {
		t.Errorf("%+v", s.result.Load())
	}
	s.device.openErr = nil
	s.do(deviceOrder{number: 2, spec: &testDevice})
	s.device.petErr = errors.New("no")
	s.runUntil(s.clock+time.Second, 0)
	if r := s.result.Load(); r.state.Error == "" || len(s.device.pets) > 6 {
		t.Errorf("%+v, %d pets", r, len(s.device.pets))
	}
	s.device.petErr = nil
	s.runUntil(s.clock+time.Second, 0)
	if r := s.result.Load(); r.state.Error != "" || !r.state.Armed {
		t.Errorf("%+v", r)
	}
}

// deviceGuard is a guard with a petter whose thread runs.
func deviceGuard(t *testing.T) (*bareGuard, *fakeDevice) {
	t.Helper()
	b := newBareGuard(t)
	b.opt.Containment = KeeperContainment // no control group is created
	d := &fakeDevice{now: boottime.Now}
	p, err := newPetter()
	if err != nil {
		t.Fatal(err)
	}
	p.open = d.open
	b.startPetter(p)
	t.Cleanup(func() {
		b.leaderships = nil
		b.closeDevice()
	})
	return b, d
}

// extendBy gives a leadership a lease.
func (b *bareGuard) extendBy(l *leadership, ahead time.Duration) {
	l.place.setDeadline(boottime.Now() + ahead)
	b.readLeases()
}

func resetSpec(required bool) *Spec {
	return &Spec{Path: "/bin/true", Argv: []string{"true"}, Reset: &ResetSpec{Device: testDevice, Within: 400 * time.Millisecond, Required: required}}
}

// await waits for the next result of the device, and acts on it.
func (b *bareGuard) awaitDevice(what string, done func() bool) {
	b.t.Helper()
	eventually(b.t, what, func() bool {
		b.tendDevice()
		return done()
	})
}

// Work starts only once the device is armed. The device is petted until the host can still be reset in time, while the work is being
// killed too, and stopped once the work is dead and the lease was given up.
func TestWorkIsCoveredByTheDevice(t *testing.T) {
	b, d := deviceGuard(t)
	d.block = make(chan struct{})
	b.extendBy(b.l, time.Hour)
	b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(true)})
	w := b.l.work
	if b.tendDevice(); w == nil || w.prepared || !w.arming {
		t.Fatalf("%+v", w)
	}
	limit := b.l.lease() - 1600*time.Millisecond // the timeout is 2 s, and the host must be reset 0.4 s after the lease
	if got := time.Duration(b.device.petter.limit.Load()); got != limit {
		t.Errorf("pets end %s before the end of the lease", b.l.lease()-got)
	}
	close(d.block)
	b.awaitDevice("the device to be armed", func() bool { return w.prepared })
	b.start(w)
	b.startKilling(w)
	b.l.setLease(0)
	b.l.abandoned = true
	b.limitPets()
	b.tendDevice()
	if got := time.Duration(b.device.petter.limit.Load()); got != limit || !b.device.inUse {
		t.Errorf("work that is being killed: the limit is %s, in use %t", got, b.device.inUse)
	}
	b.workDied(w, "")
	b.limitPets()
	if got := time.Duration(b.device.petter.limit.Load()); got != petFreely {
		t.Errorf("all work is dead: the limit is %s", got)
	}
	b.awaitDevice("the device to be stopped", func() bool { return d.counts()[2] == 1 })
	if got := d.counts(); got[0] != 1 {
		t.Errorf("%v", got)
	}
}

// The limit is that of the work with the earliest one, and never after the end of a lease.
func TestLimitCoversAllWorks(t *testing.T) {
	b, _ := deviceGuard(t)
	other := b.addLeadership(2, "h")
	b.give(b.l, &work{seq: 1, spec: resetSpec(true)})
	b.give(other, &work{seq: 2, spec: resetSpec(true)})
	b.extendBy(b.l, time.Hour)
	b.extendBy(other, time.Minute)
	limit := func() time.Duration {
		b.limitPets()
		return time.Duration(b.device.petter.limit.Load())
	}
	if got := limit(); got != other.lease()-1600*time.Millisecond {
		t.Errorf("%s", got)
	}
	other.work.spec.Reset.Within = time.Hour
	if got := limit(); got != other.lease() {
		t.Errorf("%s after the end of the lease", got-other.lease())
	}
	b.workDied(other.work, "")
	if got := limit(); got != b.l.lease()-1600*time.Millisecond {
		t.Errorf("%s", got)
	}
	b.l.work.hookDeadline = 1 // a pending hook runs after the work, without a lease
	if got := limit(); got != petFreely {
		t.Errorf("%s", got)
	}
}

// Work whose lease ends too early for the last pet of the others waits for the next renewal.
func TestWorkWaitsForALeaseThatTheLastPetFits(t *testing.T) {
	b, d := deviceGuard(t)
	b.extendBy(b.l, 500*time.Millisecond) // now + 2 s is later than 0.4 s after its end
	b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(true)})
	w := b.l.work
	b.awaitDevice("the device to be opened", func() bool { return d.counts()[0] == 1 })
	if b.tendDevice(); w.prepared {
		t.Error("the work may start although the host would be reset too late")
	}
	b.extendBy(b.l, time.Hour)
	b.limitPets()
	b.awaitDevice("the work to be prepared", func() bool { return w.prepared })
	b.extendBy(b.l, -1) // its daemon does not start it: the device must not be limited by a lease that nobody needs
	b.awaitDevice("the work to be refused", func() bool { return b.l.work == nil })
}

// What happens if the device cannot be armed depends on the mode.
func TestDeviceThatCannotBeArmed(t *testing.T) {
	for _, required := range []bool{true, false} {
		b, d := deviceGuard(t)
		d.openErr = errors.New("no device")
		b.extendBy(b.l, time.Hour)
		b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(required)})
		w := b.l.work
		b.awaitDevice("the answer", func() bool { return b.l.work == nil || w.prepared })
		if refused := b.l.work == nil; refused != required {
			t.Errorf("required %t: refused %t", required, refused)
		}
		b.limitPets()
		if got := time.Duration(b.device.petter.limit.Load()); got != petFreely {
			t.Errorf("required %t: the limit is %s", required, got)
		}
	}
}

// A driver that hangs delays neither the guard nor a kill.
func TestDriverThatHangs(t *testing.T) {
	b, d := deviceGuard(t)
	d.block = make(chan struct{})
	defer close(d.block)
	b.extendBy(b.l, time.Hour)
	b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(true)})
	w := b.l.work
	w.armBy = boottime.Now()
	if b.tendDevice(); b.l.work != nil {
		t.Error("the work waits for ever")
	}
	b.give(b.l, &work{seq: 6, spec: resetSpec(true)})
	b.l.setLease(0)
	began := boottime.Now()
	b.enforceAll()
	b.limitPets()
	b.tendDevice()
	if !b.l.work.killing || boottime.Now()-began > time.Second {
		t.Errorf("%+v after %s", b.l.work, boottime.Now()-began)
	}
	b.l.work = nil
}

// Without a lease no work is prepared: it would limit the pets at once.
func TestDeviceNeedsALease(t *testing.T) {
	b, d := deviceGuard(t)
	b.l.setLease(0)
	b.prepare(message{Leadership: 1, Seq: 5, Spec: resetSpec(false)})
	if b.l.work != nil || d.counts()[0] != 0 {
		t.Errorf("%+v", b.l.work)
	}
}

// At its end the guard leaves the device alone if work lives, so that the host is reset.
func TestGuardEndsWithLiveWork(t *testing.T) {
	b, d := deviceGuard(t)
	w := b.give(b.l, &work{seq: 1, spec: resetSpec(true)})
	b.extendBy(b.l, time.Hour)
	b.orderDevice(deviceOrder{spec: &testDevice})
	b.device.inUse = true
	b.awaitDevice("the device to be armed", func() bool { return d.counts()[0] == 1 })
	b.closeDevice()
	if got := d.counts(); got[2] != 0 || b.l.work != w {
		t.Errorf("closed: %v", got)
	}
	b.device.petter = nil // the cleanup must not close it again
}

// A daemon cannot make the petter spin, or the guard open a device without times.
func TestDeviceMessagesAreChecked(t *testing.T) {
	b := newBareGuard(t)
	spec := resetSpec(true)
	spec.Reset.Device.Interval = 0
	for _, m := range []message{{Kind: kindDevice}, {Kind: kindDevice, Device: &DeviceSpec{Path: "/dev/watchdog"}}, {Kind: kindPrepare, Leadership: 1, Seq: 3, Spec: spec}} {
		if err := b.handle(m); !errors.Is(err, errProtocol) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if b.device.petter != nil {
		t.Error("there is a petter")
	}
}

// A check opens the device and stops it again, and the daemon is told what was found.
func TestDeviceCheck(t *testing.T) {
	b, d := deviceGuard(t)
	if err := b.handle(message{Kind: kindDevice, Device: &testDevice}); err != nil {
		t.Fatal(err)
	}
	b.awaitDevice("the check", func() bool { return d.counts() == [3]int{1, 0, 1} })
	b.awaitDevice("the report", func() bool { return b.device.reported != nil && !b.device.reported.state.Armed })
	if m, err := readFrame(b.daemonEnd); err != nil || m.Kind != kindDevice || m.DeviceState == nil || m.DeviceState.Info.Timeout != testDevice.Timeout {
		t.Errorf("%+v, %v", m, err)
	}
}
