package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

// reload takes over what can be changed while running. A configuration with any fault is refused whole.
func (l *loop) reload() {
	d := l.d
	if d.opt.Reload == nil {
		d.log.Error("reload refused: this daemon has no configuration to read again")
		return
	}
	next, err := d.opt.Reload()
	var faults config.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			d.log.Error("reload refused, the running configuration stays", "fault", f.String())
		}
		return
	}
	if err != nil {
		d.log.Error("reload refused, the running configuration stays", "err", err)
		return
	}
	changed, restart := config.Diff(d.cfg, next)
	if len(restart) > 0 {
		d.log.Warn("these settings need a restart", "keys", strings.Join(restart, ", "))
	}
	if len(changed) == 0 {
		d.log.Info("reloaded, nothing has changed")
		return
	}
	before := d.cfg
	d.cfg.Node.Priority, d.cfg.Node.Site, d.cfg.Node.Labels = next.Node.Priority, next.Node.Site, next.Node.Labels
	d.cfg.Policy, d.cfg.Log.Level = next.Policy, next.Log.Level
	d.log.Info("reloaded", "keys", strings.Join(changed, ", "))
	if d.opt.Level != nil {
		d.opt.Level.UnmarshalText([]byte(d.cfg.Log.Level)) // checked with the configuration
	}
	if !reflect.DeepEqual(before.Node, d.cfg.Node) || !reflect.DeepEqual(before.Policy, d.cfg.Policy) {
		l.publishNode()
	}
	if !reflect.DeepEqual(before.Policy, d.cfg.Policy) {
		c := d.cfg
		l.owned.Go(func() {
			if err := l.publishPolicy(c); err != nil && l.life.Err() == nil {
				d.log.Error("policy not published: it holds for this host alone until it is; reload again", "err", err)
			}
		})
	}
}

// publishNode tells the elector what has changed about this daemon.
func (l *loop) publishNode() {
	rec, path := l.d.record(l.s), l.d.paths.Node(l.d.cfg.Node.ID)
	l.machine.SetSite(rec.Site)
	l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, l.budget.Session)
		defer cancel()
		data, stat, err := l.s.Get(ctx, path, false)
		if err == nil && stat.Owner != l.s.SessionID() {
			err = fmt.Errorf("it belongs to session 0x%x", stat.Owner)
		}
		if err == nil {
			rec.Since = cluster.ReadSlot[cluster.Node](path, data, stat, true).Record.Since
			_, err = l.s.Do(ctx, cluster.Op{Kind: cluster.OpSet, Path: path, Version: stat.Version, Data: cluster.Encode(&rec)})
		}
		if err != nil && l.life.Err() == nil {
			l.d.log.Error("the change of this node is not published; reload again", slog.String("znode", path), "err", err)
		}
	})
}
