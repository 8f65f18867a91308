package cli

import (
	"path/filepath"
	"testing"
)

// If a unit can't be started, the takeover fails with the reason, and the next member leads. scripts/systemd-guest-unit.sh tests
// with a real systemd that a unit runs, and ends with the lease.
func TestUnitThatCannotStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 100, "child: {unit: app.service, stop_timeout: 400ms}\n")
	f.configure("b", "dc1", 90, "")
	f.startWith([]string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + filepath.Join(f.dir, "none")}, "a")
	f.logged("a", "cannot reach systemd over D-Bus (is dbus.service running?)")
	f.start("b")
	f.until("b leads", leads("b"))
	f.waitForWork("b")
	f.stop("a")
	f.checkInvariants()
}
