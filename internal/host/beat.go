package host

import (
	"context"
	"errors"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// maxStuck is how many loops may be stuck at once. A loop that never returns keeps its memory and its goroutines, so with more of
// them the daemon is started again.
const maxStuck = 3

// ErrStuckLoops is the error of a host that must be started again, because too many of its groups' event loops are stuck.
var ErrStuckLoops = errors.New("too many event loops are stuck: the daemon must be started again")

// beat starts what shows the guard that this daemon is alive, and abandons the members whose loops are stuck. Call stop to end
// that.
func (s *session) beat() (stop func()) {
	h := s.host
	interval := status.PublishInterval(s.granted)
	if watchdog := h.opt.Guard.WatchdogInterval(); watchdog > 0 {
		interval = min(interval, watchdog)
	}
	reconnects := 0
	beat := func() {
		now := boottime.Now()
		h.opt.Guard.Heartbeat(now + s.granted*3/4) // the guard then closes the session before it expires, and releases with that
		for _, m := range s.all() {
			m.check(now)
		}
		if n := s.zk.Reconnects(); n != reconnects {
			h.counters.Update(func(t *status.Totals) { t.Reconnects += uint64(n - reconnects) })
			reconnects = n
		}
		h.publishLoad()
		s.reportReady()
		h.service.status(h.line())
	}
	beat()
	return inBackground(context.Background(), func(ctx context.Context) {
		for sleep(ctx, interval) {
			beat()
		}
	})
}

// loopStuck counts a loop that was abandoned; the function that it returns is called when that loop has returned.
func (h *Host) loopStuck() (returned func(), tooMany bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.stuck--
	}, h.stuck >= maxStuck
}
