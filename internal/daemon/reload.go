package daemon

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
)

// reloads keeps reloads apart: one at a time.
type reloads struct {
	busy, again bool
}

// reload reads the configuration again. One with any fault is refused whole, and so is one whose credentials ZooKeeper does
// not know or whose policy cannot be published.
func (l *loop) reload() {
	d := l.d
	if l.reloads.busy {
		l.reloads.again = true
		return
	}
	d.service.reloading()
	if d.opt.Reload == nil {
		l.reloaded(errors.New("this daemon has no configuration to read again"))
		return
	}
	next, files, err := d.opt.Reload()
	if err != nil {
		l.reloaded(err)
		return
	}
	l.reloads.busy = true
	l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, 2*l.budget.Session)
		defer cancel()
		identities, err := l.s.PresentCredentials(ctx, d.paths, operator.Access(next, os.Getenv))
		if err == nil {
			err = l.publishPolicy(ctx, next)
		}
		l.later(func() {
			if err == nil {
				identities.Apply()
				if identities.Changed {
					files = append(files, "zookeeper.auth.file")
					d.log.Info("the credentials for ZooKeeper have changed", "identities", l.s.Tags())
				}
				l.apply(next, files)
			}
			l.reloaded(err)
			if l.reloads.busy = false; l.reloads.again {
				l.reloads.again = false
				l.reload()
			}
		})
	})
}

// publishPolicy makes the policy of a configuration that of the group, if it has changed.
func (l *loop) publishPolicy(ctx context.Context, next config.Config) error {
	now := l.d.config()
	if next.Policy.Revision == now.Policy.Revision && next.Rules().Digest() == now.Rules().Digest() {
		return nil
	}
	rec, err := operator.PublishPolicy(ctx, l.s, l.d.paths, operator.Proposal{Config: next, By: next.Node.ID, Revision: next.Policy.Revision})
	if err == nil {
		l.d.log.Info("policy in force for the group", "revision", rec.Revision, "by", rec.By)
	}
	return err
}

// apply takes over what can be changed while running; files are the settings whose files hold something else.
func (l *loop) apply(next config.Config, files []string) {
	d := l.d
	before := d.config()
	changed, restart := config.Diff(before, next)
	if len(restart) > 0 {
		d.log.Warn("these settings need a restart", "keys", strings.Join(restart, ", "))
	}
	for _, key := range files {
		if !slices.Contains(changed, key) {
			changed = append(changed, key)
		}
	}
	d.reloaded = difference(changed, restart)
	if len(changed) == 0 {
		d.log.Info("reloaded, no setting has changed")
		return
	}
	c := before
	c.Node.Priority, c.Node.Site, c.Node.Labels, c.Node.Observer = next.Node.Priority, next.Node.Site, next.Node.Labels, next.Node.Observer
	c.Policy, c.Log.Level = next.Policy, next.Log.Level
	c.HTTP.TokenFile, c.HTTP.AllowedHosts = next.HTTP.TokenFile, next.HTTP.AllowedHosts
	c.Election.Failback, c.Election.MaxPreemptions, c.Election.PreemptionWindow = next.Election.Failback, next.Election.MaxPreemptions, next.Election.PreemptionWindow
	c.ZooKeeper.Auth, c.ZooKeeper.ACL = next.ZooKeeper.Auth, next.ZooKeeper.ACL
	d.inForce.Store(&c)
	d.log.Info("reloaded", "keys", strings.Join(changed, ", "))
	if d.opt.Level != nil {
		d.opt.Level.UnmarshalText([]byte(c.Log.Level)) // checked with the configuration
	}
	d.cache.SetSource(&operator.Source{Session: l.s, Paths: d.paths, Config: c})
	if !reflect.DeepEqual(before.Policy, c.Policy) {
		d.drift = ""
	}
	if c.ZooKeeper.Auth != before.ZooKeeper.Auth || c.ZooKeeper.ACL != before.ZooKeeper.ACL {
		d.opt.Guard.SetAccess(operator.EncodeAccess(operator.Access(c, os.Getenv)))
		l.owned.Go(func() {
			ctx, cancel := context.WithTimeout(l.life, l.budget.Session)
			defer cancel()
			l.lookAtTree(ctx)
		})
	}
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
	var invalid config.Errors
	switch {
	case err == nil:
		if d.opt.Taken != nil {
			d.opt.Taken()
		}
	case errors.As(err, &invalid):
		for _, f := range invalid {
			d.log.Error("reload refused, the running configuration stays", "err", f)
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
