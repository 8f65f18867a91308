package cli

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

// A host that requires a watchdog device and has none is not elected, and status says why. With the mode automatic it leads without.
func TestWatchdogDeviceThatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 3, "watchdog_device: {mode: required, device: /dev/zkelectd-none}\n")
	f.configure("b", "dc1", 2, "watchdog_device: {mode: automatic, device: /dev/zkelectd-none}\n")
	f.start("a")
	f.start("b")
	f.until("b leads, and a is not eligible", func(g status.Group) bool {
		return leads("b")(g) && slices.ContainsFunc(g.Members, func(m status.Member) bool {
			return m.Node == "a" && strings.Contains(m.Eligible, "watchdog_device.mode is required")
		})
	})
	f.logged("a", "the watchdog device, which is required, cannot be used")
	f.logged("b", "the watchdog device is not used")
	f.checkInvariants()
}
