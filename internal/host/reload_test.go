package host

import (
	"context"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/status"
)

// A reload while hooks, probes and the child are being started: the race detector must find nothing.
func TestReloadDuringATakeover(t *testing.T) {
	var reloads sync.WaitGroup
	reloading, stop := context.WithCancel(t.Context())
	priority := 0
	d, done := runWith(t, fresh(), "a", func(d *Host) {
		next := d.opt.Config
		d.opt.Reload = func() (Reloaded, error) {
			priority++
			next.Node.Priority, next.Node.Site = priority, []string{"dc1", "dc2"}[priority%2]
			return Reloaded{Config: next}, nil
		}
		reloads.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					d.Reload()
				case <-reloading.Done():
					return
				}
			}
		})
	}, "ZKELECTD_CHILD_COMMAND=sleep,1000", "ZKELECTD_CHILD_READY_EXEC=true", "ZKELECTD_CHILD_LIVE_EXEC=true",
		"ZKELECTD_HOOKS_PRE_START=sleep,0.1", "ZKELECTD_HOOKS_POST_STOP=sleep,0.1", "ZKELECTD_HEALTH_EXEC=true", "ZKELECTD_HEALTH_INTERVAL=5ms")
	until(t, d, "a leads", status.Daemon.Leads)
	d.Stop("the test is over")
	if err := <-done; err != nil {
		t.Error(err)
	}
	stop()
	reloads.Wait()
	if priority < 10 {
		t.Errorf("reloaded %d times", priority)
	}
}
