package group

import (
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/test/testhelper"
)

// What the elector shows is what it decides by, also if only the loads have changed since it read the group.
func TestTheElectorShowsChangedLoads(t *testing.T) {
	var known, shown atomic.Pointer[float64]
	m := joinWith(t, storetest.NewServer(), "a", 0, func(s memorySession) Session { return s },
		func(g *Group, s *Settings, _ *InstanceOptions) {
			s.Rules = cluster.Rules{Type: "latency"}
			g.opt.Loads = func() map[string]cluster.Load { return map[string]cluster.Load{"a": {Latency: known.Load()}} }
			g.opt.OnElector = func(s *cluster.Snapshot) {
				if len(s.Members) == 1 && s.Elected.Readable() {
					shown.Store(s.Members[0].Node.Record.Latency)
				}
			}
		})
	m.until(t, "it leads", status.Daemon.Leads)
	for _, want := range []float64{7, 8, 9, 10} {
		known.Store(&want)
		testhelper.Eventually(t, 10*time.Second, "the elector shows the load", func() bool {
			m.group.LoadsChanged()
			got := shown.Load()
			return got != nil && *got == want
		})
	}
}

// A member that does not elect shows nothing: it does not read all that an elector does.
func TestAMemberThatDoesNotElectShowsNothing(t *testing.T) {
	server := storetest.NewServer()
	same := func(s memorySession) Session { return s }
	joinWith(t, server, "a", 0, same, func(*Group, *Settings, *InstanceOptions) {}).until(t, "it leads", status.Daemon.Leads)
	var shown atomic.Pointer[cluster.Snapshot]
	shown.Store(&cluster.Snapshot{}) // from when it was the elector
	joinWith(t, server, "b", 0, same, func(g *Group, _ *Settings, _ *InstanceOptions) { g.opt.OnElector = shown.Store })
	testhelper.Eventually(t, 10*time.Second, "it shows nothing", func() bool { return shown.Load() == nil })
}
