package daemon

import (
	"context"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/probe"
	"zkelectd/internal/workenv"
)

// vitals are what the daemon finds out about its host. They outlive the session.
type vitals struct {
	mu        sync.Mutex
	unhealthy string
	latency   average
	score     average
	changed   chan struct{} // there is something to publish
}

// average is smoothed; shown is what was published of it.
type average struct {
	value, shown float64
	known        bool
}

// smoothing is the weight of the newest value.
const smoothing = 0.3

// add takes in a value and tells whether the average is worth publishing: it has moved by a tenth, and by more than least.
func (a *average) add(x, least float64) bool {
	if !a.known {
		a.value, a.shown, a.known = x, x, true
		return true
	}
	a.value += smoothing * (x - a.value)
	moved := math.Abs(a.value - a.shown)
	if moved == 0 || moved < least || moved < math.Abs(a.shown)/10 {
		return false
	}
	a.shown = a.value
	return true
}

func (a *average) published() *float64 {
	if !a.known {
		return nil
	}
	v := math.Round(a.shown*1000) / 1000
	return &v
}

func newVitals(c config.Config) *vitals {
	v := &vitals{changed: make(chan struct{}, 1)}
	if !target(c.Health.Check).Empty() {
		v.unhealthy = "not probed yet"
	}
	return v
}

func target(c config.Check) probe.Target {
	return probe.Target{Exec: c.Exec, HTTP: c.HTTP, TCP: c.TCP}
}

// set changes something under the lock, and has it published if that says so.
func (v *vitals) set(change func() bool) {
	v.mu.Lock()
	changed := change()
	v.mu.Unlock()
	if !changed {
		return
	}
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// ill says what is wrong with the host, "" if nothing is.
func (v *vitals) ill() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unhealthy
}

func (v *vitals) fill(n *cluster.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n.Unhealthy, n.Latency, n.Score = v.unhealthy, v.latency.published(), v.score.published()
}

// watch probes the host until ctx is over.
func (d *Daemon) watch(ctx context.Context) {
	var g errgroup.Group
	defer g.Wait()
	env := workenv.Clean(os.Environ())
	if h := d.config().Health; !target(h.Check).Empty() {
		w := probe.Watch{Target: target(h.Check), Section: "health", Interval: h.Interval, Timeout: h.Timeout, Rise: h.Rise, Fall: h.Fall, FirstDecides: true}
		g.Go(func() error {
			w.Run(ctx, env, d.healthTurns)
			return nil
		})
	}
	if s := d.config().Score; len(s.Exec) > 0 || s.HTTP != "" {
		g.Go(func() error {
			d.watchScore(ctx, s, env)
			return nil
		})
	}
}

func (d *Daemon) healthTurns(err error) {
	text := ""
	if err != nil {
		text = err.Error()
		d.log.Warn("this host is unhealthy and will not be elected", "reason", err)
	} else {
		d.log.Info("this host is healthy")
	}
	d.vitals.set(func() bool {
		changed := d.vitals.unhealthy != text
		d.vitals.unhealthy = text
		return changed
	})
}

func (d *Daemon) watchScore(ctx context.Context, s config.Score, env []string) {
	failing := false
	for {
		limited, cancel := context.WithTimeout(ctx, s.Timeout)
		n, err := probe.Target{Exec: s.Exec, HTTP: s.HTTP}.Measure(limited, "score", env)
		cancel()
		if err == nil {
			d.vitals.set(func() bool { return d.vitals.score.add(n, 0) })
		} else if !failing && ctx.Err() == nil {
			d.log.Warn("no score could be read; the last one stays", "err", err)
		}
		failing = err != nil
		t := time.NewTimer(s.Interval)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
