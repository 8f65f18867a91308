package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/testhelper"
)

// allowRemovals makes all reloads of a host allow them.
func allowRemovals(f *fleetOf) {
	f.opt.Reload = func(running config.Host, _ bool) (Reloaded, error) {
		r, err := config.ReloadHost(f.src, running, true)
		return Reloaded{Reloaded: r}, err
	}
}

// A host may have no group left. Then one is added.
func TestReloadOfAHostWithoutGroups(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 1)
	allowRemovals(f)
	f.until("g0", "leads", status.Daemon.Leads)
	f.remove("g0")
	f.Reload()
	wait(t, "g0 is removed", func() bool { return len(f.Groups()) == 0 })
	initialize(t, base+"/g1")
	f.write("g1", work)
	f.Reload()
	f.until("g1", "leads", status.Daemon.Leads)
}

// The work of a group that was removed does not end. The same reload and later ones apply everything else, and the
// group stays visible; only what would be in its way waits.
func TestWorkOfARemovedGroupHoldsNothingBack(t *testing.T) {
	f, pid := runWithPids(t, work)
	allowRemovals(f)
	base := f.base
	release := testhelper.HangOnDeath(t, pid)
	f.remove("g0")
	initialize(t, base+"/g2")
	f.write("g2", work)
	f.Reload()
	f.until("g2", "leads", status.Daemon.Leads)
	if v := f.view("g0"); v.Term == 0 {
		t.Errorf("the removed group is shown as %+v", v)
	}
	f.write("g0", work)
	initialize(t, base+"/g3")
	f.write("g3", work)
	f.Reload()
	f.until("g3", "leads", status.Daemon.Leads)
	if f.resource("g0") != nil {
		t.Error("g0 is added although its work has not ended")
	}
	release()
	wait(t, "g0 is added again", func() bool { return f.resource("g0") != nil && f.view("g0").Leads() })
}

// However often the host ends a session by itself, the work is stopped gracefully, also if a person then asks for a
// stop.
func TestTheEndOfASessionStopsGracefully(t *testing.T) {
	base, dir := fresh(), t.TempDir()
	ready, stopped := filepath.Join(dir, "ready"), filepath.Join(dir, "stopped")
	initializeAll(t, base, 1)
	f := joinGroupsOf(t, base, "a", 1, strings.NewReplacer("READY", ready, "STOPPED", stopped).Replace(
		"child:\n  command: [sh, -c, 'trap \"sleep 0.2; echo > STOPPED; exit\" TERM; echo > READY; while :; do sleep 0.05; done']\n"+
			"  stop_timeout: 3s\n"))
	there := func(file string) func() bool {
		return func() bool { _, err := os.Stat(file); return err == nil }
	}
	wait(t, "the work runs", there(ready))
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	for range 2 {
		s.end(errors.New("the test"))
	}
	f.Stop("maintenance")
	wait(t, "the work has stopped in order", there(stopped))
}
