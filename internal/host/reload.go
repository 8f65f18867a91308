package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/status"
)

// Reloaded is a configuration that was read again.
type Reloaded struct {
	Config config.Config
	// Changed lists the settings whose files have changed.
	Changed []string
	// Commit applies the settings outside the host (tokens, allowed hosts). It is called once the configuration is accepted; nil
	// for none.
	Commit func()
}

// reloadResult is the result of the last reload, for the node's record.
type reloadResult struct {
	count   int64  // how many reloads there were
	refused string // why it was refused
	text    string // what it changed
}

// serveReloads reloads the configuration on each request until ctx ends, without blocking the member's loop. timeout bounds the
// ZooKeeper operations of one reload.
func (h *Host) serveReloads(ctx context.Context, s *zkstore.Session, m *group.Member, timeout time.Duration) {
	for {
		select {
		case <-h.reloads:
			h.reload(ctx, s, m, timeout)
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the configuration again and applies it. It refuses the whole configuration if it is invalid, if ZooKeeper does not
// know its credentials, or if its policy cannot be published.
func (h *Host) reload(ctx context.Context, s *zkstore.Session, m *group.Member, timeout time.Duration) {
	h.service.reloading()
	next, err := h.read()
	var identities *zkstore.CredentialChange
	if err == nil {
		if identities, err = h.check(ctx, s, next.Config, timeout); err != nil && s.Err() != nil {
			<-ctx.Done() // not refused: the member ends with the session
		}
	}
	if ctx.Err() != nil {
		h.Reload() // the next session repeats it
		return
	}
	last := reloadResult{count: h.lastReload.Load().count + 1}
	auditACLs := false
	if err == nil {
		identities.Apply()
		if identities.Changed {
			next.Changed = append(next.Changed, "zookeeper.auth.file")
			h.log.Info("the credentials for ZooKeeper have changed", "identities", s.Tags())
		}
		last.text, auditACLs = h.apply(s, next)
	} else {
		last.refused = err.Error()
		h.logRefused(err)
	}
	h.lastReload.Store(&last)
	h.counters.Update(func(t *status.Totals) {
		if t.ReloadFailed = err != nil; err == nil {
			t.Reloaded = time.Now()
		}
	})
	m.Apply(h.settings(), auditACLs) // if the member has ended, the next one registers with them
	h.service.ready(h.line(h.View()))
}

func (h *Host) logRefused(err error) {
	var invalid config.Errors
	if !errors.As(err, &invalid) {
		h.log.Error("reload refused, the running configuration stays", "err", err)
	}
	for _, f := range invalid {
		h.log.Error("reload refused, the running configuration stays", "err", f)
	}
}

// read reads the configuration again.
func (h *Host) read() (Reloaded, error) {
	if h.opt.Reload == nil {
		return Reloaded{}, errors.New("this daemon has no configuration to read again")
	}
	return h.opt.Reload()
}

// check checks that ZooKeeper accepts the credentials of a configuration, and publishes its policy.
func (h *Host) check(ctx context.Context, s *zkstore.Session, next config.Config, timeout time.Duration) (*zkstore.CredentialChange, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	identities, err := s.PresentCredentials(ctx, h.paths, operator.Access(next, os.Getenv))
	if err != nil {
		return nil, err
	}
	return identities, h.publishPolicy(ctx, s, next)
}

// publishPolicy publishes the policy of a configuration if it has changed.
func (h *Host) publishPolicy(ctx context.Context, s *zkstore.Session, next config.Config) error {
	now := h.config()
	if next.Policy.Revision == now.Policy.Revision && next.Rules().Digest() == now.Rules().Digest() {
		return nil
	}
	rec, err := operator.PublishPolicy(ctx, s, h.paths, operator.Proposal{Config: next, By: next.Node.ID, Revision: next.Policy.Revision})
	if err == nil {
		h.log.Info("policy in force for the group", "revision", rec.Revision, "by", rec.By)
	}
	return err
}

// apply applies the settings that a reload may change, except for the group's. It returns a description of the changes, and
// reports whether the ACLs of the group's znodes must be checked again.
func (h *Host) apply(s *zkstore.Session, next Reloaded) (text string, auditACLs bool) {
	before := h.config()
	changed, restart := config.Diff(before, next.Config)
	if len(restart) > 0 {
		h.log.Warn("these settings need a restart", "keys", strings.Join(restart, ", "))
	}
	for _, key := range next.Changed {
		if !slices.Contains(changed, key) {
			changed = append(changed, key)
		}
	}
	if len(changed) == 0 {
		h.log.Info("reloaded, no setting has changed")
	} else {
		c := config.ApplyReload(before, next.Config)
		h.inForce.Store(&c)
		h.log.Info("reloaded", "keys", strings.Join(changed, ", "))
		if h.opt.Level != nil {
			h.opt.Level.UnmarshalText([]byte(c.Log.Level)) // checked with the configuration
		}
		h.cache.SetSource(&operator.Source{Session: s, Paths: h.paths, Config: c})
		if c.ZooKeeper.Auth != before.ZooKeeper.Auth || c.ZooKeeper.ACL != before.ZooKeeper.ACL {
			auditACLs = true
			h.opt.Guard.SetAccess(operator.EncodeAccess(operator.Access(c, os.Getenv)))
		}
	}
	if next.Commit != nil {
		next.Commit()
	}
	return difference(changed, restart), auditACLs
}

// difference returns a description of the changes that a reload has made.
func difference(changed, restart []string) string {
	text := "no setting has changed"
	if len(changed) > 0 {
		text = "applied: " + strings.Join(changed, ", ")
	}
	if len(restart) > 0 {
		text += "; a restart is needed for " + strings.Join(restart, ", ")
	}
	return text
}
