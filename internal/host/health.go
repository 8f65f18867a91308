package host

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// health holds the host's health, latency and score. It outlives sessions, and is safe for concurrent use.
type health struct {
	log      *slog.Logger
	onChange func() // called after a change of unhealthy
	// onMeasured is called after a change of latency or score that must be published in the records of the groups; nil
	// if they are not published there.
	onMeasured func()

	responded atomic.Int64 // see RespondedAt

	mu        sync.Mutex
	unhealthy string // why the host must not lead
	device    string // why the watchdog device that it requires cannot be used
	latency   average
	sampled   time.Time // when latency was observed last
	score     average
}

func newHealth(c config.Config, log *slog.Logger) *health {
	h := &health{log: log, onChange: func() {}, onMeasured: func() {}}
	if !c.Health.Empty() {
		h.unhealthy = "not probed yet"
	}
	return h
}

// update calls change under the lock, and then notify, unless that is nil, if change returns true.
func (h *health) update(notify func(), change func() bool) {
	h.mu.Lock()
	changed := change()
	h.mu.Unlock()
	if changed && notify != nil {
		notify()
	}
}

// UnhealthyReason returns why the host must not lead; empty if it may.
func (h *health) UnhealthyReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.unhealthy, h.device)
}

// setDevice records why the watchdog device that this host requires cannot be used; nil if it can.
func (h *health) setDevice(err error) {
	reason := ""
	if err != nil {
		reason = deviceError(err).Error()
	}
	h.setReason(&h.device, reason)
}

// setReason changes one of the reasons why the host must not lead.
func (h *health) setReason(reason *string, now string) {
	h.update(h.onChange, func() bool {
		changed := *reason != now
		*reason = now
		return changed
	})
}

// ObserveRead adds the time that a read from ZooKeeper took. However many groups read, one sample counts per interval.
func (h *health) ObserveRead(at, took time.Duration) {
	h.NoteResponse(at)
	ms := float64(took) / float64(time.Millisecond)
	h.update(h.onMeasured, func() bool {
		if !h.sampled.IsZero() && time.Since(h.sampled) < status.CheckInterval/2 {
			return false
		}
		h.sampled = time.Now()
		return h.latency.add(ms, 0.5)
	})
}

// NoteResponse records that ZooKeeper has answered a read that began at a time on CLOCK_BOOTTIME.
func (h *health) NoteResponse(at time.Duration) {
	for last := h.responded.Load(); int64(at) > last; last = h.responded.Load() {
		if h.responded.CompareAndSwap(last, int64(at)) {
			return
		}
	}
}

// RespondedAt returns when the last read began that ZooKeeper has answered; 0 before the first.
func (h *health) RespondedAt() time.Duration { return time.Duration(h.responded.Load()) }

// Fill copies health, latency and score into a node's record.
func (h *health) Fill(n *cluster.Node) {
	n.Unhealthy = h.UnhealthyReason()
	if h.onMeasured != nil { // else they are in the load of the host: each change would rewrite the record in every group
		h.measured(n)
	}
}

// measured copies latency and score into a node's record.
func (h *health) measured(n *cluster.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.Latency, n.Score = h.latency.rounded(), h.score.rounded()
}

// A host, or a child, counts as failed after fall failed checks in a row, and a host as healthy again after healthRise
// successful ones.
const (
	fall       = 3
	healthRise = 2
)

// The score is measured every scoreInterval.
const scoreInterval = 10 * time.Second

// probe probes the host until ctx ends.
func (h *health) probe(ctx context.Context, c config.Config) {
	var g errgroup.Group
	defer g.Wait()
	env := workenv.Clean(os.Environ())
	if t := c.Health; !t.Empty() {
		w := probe.Watch{Target: t.Target, Section: "health", Interval: t.Interval, Timeout: t.Timeout(),
			Rise: healthRise, Fall: fall, FirstDecides: true}
		g.Go(func() error {
			w.Run(ctx, env, h.setUnhealthy)
			return nil
		})
	}
	if argv := c.Score.Exec; len(argv) > 0 {
		g.Go(func() error {
			h.measureScore(ctx, argv, env, c.Score.Timeout)
			return nil
		})
	}
}

func (h *health) setUnhealthy(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
		h.log.Warn("this host is unhealthy and will not be elected", "reason", err)
	} else {
		h.log.Info("this host is healthy")
	}
	h.setReason(&h.unhealthy, reason)
}

func (h *health) measureScore(ctx context.Context, argv, env []string, timeout time.Duration) {
	failing := false
	for ok := true; ok; ok = sleep(ctx, scoreInterval) {
		limited, cancel := context.WithTimeout(ctx, timeout)
		n, err := probe.Score(limited, argv, env)
		cancel()
		if err == nil {
			h.update(h.onMeasured, func() bool { return h.score.add(n, 0) })
		} else if !failing && ctx.Err() == nil {
			h.log.Warn("no score could be read; the last one stays", "err", err)
		}
		failing = err != nil
	}
}

// average is a smoothed value, and the value that was published last.
type average struct {
	value, published float64
	known            bool
}

// smoothing is the weight of the newest value.
const smoothing = 0.3

// add adds x, and reports whether the average must be published again, because it has changed by a tenth or more, and
// by least or more, since it was published.
func (a *average) add(x, least float64) bool {
	if !a.known {
		a.value, a.published, a.known = x, x, true
		return true
	}
	a.value += smoothing * (x - a.value)
	moved := math.Abs(a.value - a.published)
	if moved == 0 || moved < least || moved < math.Abs(a.published)/10 {
		return false
	}
	a.published = a.value
	return true
}

// rounded returns the published value, rounded to a thousandth; nil if there is none yet. A whole number stays what it
// is: times a thousand, a large one would lose digits.
func (a *average) rounded() *float64 {
	if !a.known {
		return nil
	}
	v := a.published
	if v != math.Trunc(v) {
		v = math.Round(v*1000) / 1000
	}
	return &v
}
