package daemon

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/status"
)

// reload reads the configuration again. One with any fault is refused whole, and so is one whose policy cannot be
// published.
func (l *loop) reload() {
	d := l.d
	d.service.reloading()
	if d.opt.Reload == nil {
		l.reloaded(errors.New("this daemon has no configuration to read again"))
		return
	}
	next, err := d.opt.Reload()
	if err != nil {
		l.reloaded(err)
		return
	}
	changed, restart := config.Diff(d.cfg, next)
	if len(restart) > 0 {
		d.log.Warn("these settings need a restart", "keys", strings.Join(restart, ", "))
	}
	if len(changed) == 0 {
		d.log.Info("reloaded, no setting has changed")
		d.reloaded = difference(changed, restart)
		l.reloaded(nil)
		return
	}
	if next.Policy.Revision == d.cfg.Policy.Revision && next.Rules().Digest() == d.cfg.Rules().Digest() {
		l.apply(next, changed, restart)
		return
	}
	l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, 2*l.budget.Session)
		defer cancel()
		rec, err := PublishPolicy(ctx, l.s, l.d.paths, Proposal{Config: next, By: next.Node.ID, Explicit: next.Policy.Revision})
		l.later(func() {
			if err != nil {
				l.reloaded(err)
				return
			}
			l.d.log.Info("policy in force for the group", "revision", rec.Revision, "by", rec.By)
			l.apply(next, changed, restart)
		})
	})
}

// apply takes over what can be changed while running.
func (l *loop) apply(next config.Config, changed, restart []string) {
	d := l.d
	before := d.cfg
	d.cfg.Node.Priority, d.cfg.Node.Site, d.cfg.Node.Labels, d.cfg.Node.Never = next.Node.Priority, next.Node.Site, next.Node.Labels, next.Node.Never
	d.cfg.Policy, d.cfg.Log.Level, d.cfg.HTTP.TokenFile = next.Policy, next.Log.Level, next.HTTP.TokenFile
	d.cfg.Election.Failback, d.cfg.Election.MaxMoves, d.cfg.Election.MovesWindow = next.Election.Failback, next.Election.MaxMoves, next.Election.MovesWindow
	d.log.Info("reloaded", "keys", strings.Join(changed, ", "))
	if d.opt.Level != nil {
		d.opt.Level.UnmarshalText([]byte(d.cfg.Log.Level)) // checked with the configuration
	}
	d.onlooker.source.Store(&source{l.s, d.paths, d.cfg})
	if !reflect.DeepEqual(before.Policy, d.cfg.Policy) {
		d.drift = ""
	}
	d.reloaded = difference(changed, restart)
	l.reloaded(nil)
}

// difference says what a reload has changed.
func difference(changed, restart []string) string {
	text := "no setting has changed"
	if len(changed) > 0 {
		text = "taken over: " + strings.Join(changed, ", ")
	}
	if len(restart) > 0 {
		text += "; a restart is needed for " + strings.Join(restart, ", ")
	}
	return text
}

// reloaded notes how a reload went: in the log, and for who has asked for it in nodes/<id>.
func (l *loop) reloaded(err error) {
	d := l.d
	d.loads++
	d.refused = ""
	var faults config.Faults
	switch {
	case err == nil:
		if d.opt.Taken != nil {
			d.opt.Taken()
		}
	case errors.As(err, &faults):
		for _, f := range faults {
			d.log.Error("reload refused, the running configuration stays", "fault", f.String())
		}
	default:
		d.log.Error("reload refused, the running configuration stays", "err", err)
	}
	if err != nil {
		d.refused, d.reloaded = err.Error(), ""
	}
	d.tally.count(func(t *status.Totals) {
		if t.ReloadFailed = err != nil; err == nil {
			t.Reloaded = time.Now()
		}
	})
	d.service.ready(l.line())
	l.node.publish()
}
