// Package boottime reads the clock that leases are measured with: CLOCK_BOOTTIME, which cannot be set and which
// continues while the host is suspended (docs/protocol.md, Leading, and the lease).
package boottime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/nowait"
)

// getTime is a variable for the tests.
var getTime = nowait.ClockGettime

// Now returns the time since the host booted.
func Now() time.Duration {
	var ts unix.Timespec
	if err := getTime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// This happens only with kernels before 2.6.39. Leases are not possible without the clock.
		panic(fmt.Sprintf("boottime: CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
