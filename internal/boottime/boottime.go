// Package boottime is the clock that leases are measured with: CLOCK_BOOTTIME, which no one can set and which goes on
// while the host is suspended (docs/protocol.md, Leading, and the lease).
package boottime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// getTime is a variable for the tests.
var getTime = unix.ClockGettime

// Now is the time since the host booted.
func Now() time.Duration {
	var ts unix.Timespec
	if err := getTime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Only a kernel older than 2.6.39 gets here; without the clock no lease can be kept.
		panic(fmt.Sprintf("boottime: CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
