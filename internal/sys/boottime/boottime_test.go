package boottime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A lease must not be prolonged by a suspension of the host. CLOCK_BOOTTIME and CLOCK_MONOTONIC are equal until then, so the test
// checks which clock is read.
func TestClockContinuesWhileSuspended(t *testing.T) {
	const suspended = time.Hour
	var clocks []int32
	original := getTime
	t.Cleanup(func() { getTime = original })
	getTime = func(clock int32, ts *unix.Timespec) error {
		clocks = append(clocks, clock)
		err := original(clock, ts)
		if clock == unix.CLOCK_BOOTTIME {
			*ts = unix.NsecToTimespec(ts.Nano() + int64(suspended))
		}
		return err
	}
	var monotonic unix.Timespec
	if err := original(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		t.Fatal(err)
	}
	if now := Now(); now < time.Duration(monotonic.Nano())+suspended || len(clocks) != 1 || clocks[0] != unix.CLOCK_BOOTTIME {
		t.Errorf("after a suspension of %s the clock shows %s, CLOCK_MONOTONIC %s; clocks read: %v", suspended, now, time.Duration(monotonic.Nano()), clocks)
	}
}

func TestNowIsTheTimeOfTheKernel(t *testing.T) {
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &before); err != nil {
		t.Fatal(err)
	}
	now := Now()
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &after); err != nil {
		t.Fatal(err)
	}
	if now < time.Duration(before.Nano()) || now > time.Duration(after.Nano()) {
		t.Errorf("the clock shows %s between %s and %s", now, time.Duration(before.Nano()), time.Duration(after.Nano()))
	}
}
