package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/fencer"
)

// fencing returns how an instance of the group fences.
func (h *Host) fencing(c config.Config) group.Fencing {
	f := operator.Fencing(c)
	of := group.Fencing{FenceNode: func(ctx context.Context, t fencer.Target, run fencer.Runner) (string, error) {
		// Another host with the same id is another one: its fencing says nothing about this one (S1).
		key := fmt.Sprintf("%q", []string{t.Node, t.Host, t.Site, t.Address, fingerprint(f)})
		return h.fencings.FenceNode(ctx, key, func(ctx context.Context) (string, error) {
			return f.FenceNode(ctx, t, run)
		})
	}}
	of.Enabled, of.Required, of.SkipWait, of.Limit = f.Enabled(), c.Fencing.Required, c.Fencing.SkipWait, f.Limit()
	return of
}

// fingerprint returns a text that is the same for the same way to fence.
func fingerprint(f fencer.Config) string { return fmt.Sprintf("%+v", f) }

// monitored is what the last monitor of one configuration has found.
type monitored struct {
	at    time.Time
	texts []string
}

// fencingMonitor asks from time to time whether fencing would work.
type fencingMonitor struct {
	found map[string]monitored // by fingerprint
}

// monitorFencing asks the fence agents of all groups whether they would work, until ctx ends. What they say is a
// problem of the node.
func (h *Host) monitorFencing(ctx context.Context) {
	m := &h.fencingMonitor
	m.found = make(map[string]monitored)
	for pause := fencingFirst; sleep(ctx, pause); pause = fencingPace {
		m.round(ctx, h)
	}
}

// Timing of the monitor: when it begins, how often it looks whether the agents of a group are due, and how often they
// are.
const (
	fencingFirst    = 2 * time.Second
	fencingPace     = 5 * time.Second
	fencingInterval = 5 * time.Minute
)

// round monitors what is due.
func (m *fencingMonitor) round(ctx context.Context, h *Host) {
	used, failed := make(map[string]bool), 0
	for _, r := range h.resources() {
		c := r.config()
		f := operator.Fencing(c)
		key := fingerprint(f)
		if !f.Enabled() {
			r.setFencingProblems(nil)
			continue
		}
		last, known := m.found[key]
		if !used[key] && (!known || time.Since(last.at) >= fencingInterval) {
			texts := last.texts
			if h.fencings.Monitor(ctx, func(ctx context.Context) { texts = monitor(ctx, f, c) }) {
				last = monitored{time.Now(), texts}
				m.found[key] = last
			}
		}
		if !used[key] {
			failed += len(last.texts)
		}
		used[key] = true
		r.setFencingProblems(last.texts)
	}
	for key := range m.found {
		if !used[key] {
			delete(m.found, key)
		}
	}
	h.counters.Update(func(t *status.Totals) { t.Unfenceable = failed })
}

// monitor returns why nodes could not be fenced. First it validates the options: a device that answers proves nothing
// about them.
func monitor(ctx context.Context, f fencer.Config, c config.Config) (texts []string) {
	for _, err := range f.Check(ctx, c.Fencing.SkipWait, fencer.Run) {
		texts = append(texts, err.Error())
	}
	if len(texts) > 0 {
		return texts
	}
	for _, node := range f.Nodes() {
		if node == c.Node.ID { // no member fences itself
			continue
		}
		if err := f.Monitor(ctx, node, fencer.Run); err != nil {
			texts = append(texts, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return texts
}

// setFencingProblems records, logs and publishes why fencing would not work.
func (r *resource) setFencingProblems(texts []string) {
	r.notice(&r.fencingProblems, texts, "fencing would not work: correct it before a failover",
		"fencing would work: its monitor finds no problem any more")
}

// allProblems returns why this host could not start the work, or could not fence, as the node's record contains them.
func (r *resource) allProblems() []string {
	return problemTexts(slices.Concat(*r.problems.Load(), *r.fencingProblems.Load()))
}
