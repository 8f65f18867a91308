package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/zk"
)

// With zookeeper.follow a host follows the ensemble's reconfiguration: servers that the ensemble has are used in
// addition to those of zookeeper.servers. Whatever its znode says, a server is used only once it has proven to have
// the host's group.

// followPause is how long the host waits before it asks servers again that have not answered.
const followPause = 5 * time.Second

// following is what a host has followed its ensemble to. It outlives the sessions.
type following struct {
	log     *slog.Logger
	changed chan struct{} // one slot: the configuration in force has changed

	// Only the goroutine of follow uses these.
	version uint64 // of the ensemble's configuration
	said    string // the last problem that was logged

	servers atomic.Pointer[[]string] // those that have proven to have the group; nil for none
}

// list returns the servers that were followed.
func (f *following) list() []string {
	if servers := f.servers.Load(); servers != nil {
		return *servers
	}
	return nil
}

// set replaces the servers that were followed, and reports whether that changes anything.
func (f *following) set(servers []string) (changed bool) {
	before := f.list()
	f.servers.Store(&servers)
	return !slices.Equal(before, servers)
}

// servers returns the servers of the configuration in force, and those that were followed.
func (h *Host) servers() []string {
	all := slices.Clone(h.config().ZooKeeper.Servers)
	for _, server := range h.following.list() {
		if !slices.Contains(all, server) {
			all = append(all, server)
		}
	}
	return all
}

// restoreFollowed uses the servers that the host had followed its ensemble to when it recorded that it is in a group:
// those of the configuration may be gone by now.
func (h *Host) restoreFollowed() {
	if !h.config().ZooKeeper.Follow {
		return
	}
	for _, r := range h.resources() {
		if recorded, err := r.readJoined(); err == nil && recorded.ID != "" && len(recorded.Followed) > 0 {
			h.following.set(recorded.Followed)
			return
		}
	}
}

// forgetFollowed drops the servers that were followed. It returns false if a server is none of them.
func (h *Host) forgetFollowed(server string) bool {
	if slices.Contains(h.config().ZooKeeper.Servers, server) || !slices.Contains(h.following.list(), server) {
		return false
	}
	h.following.set(nil)
	return true
}

// follow follows the ensemble's reconfiguration until ctx ends.
func (h *Host) follow(ctx context.Context, s *session) {
	conn := s.zk.Group(cluster.Paths{Root: zk.EnsemblePath})
	defer conn.Close()
	h.following.version = 0 // it may have gone back with the ensemble's data
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-conn.Wake():
			conn.TakeHints()
		case <-h.following.changed:
		case <-ctx.Done():
			return
		}
		again.Stop()
		if !h.config().ZooKeeper.Follow {
			if h.following.set(nil) {
				h.applyAccess(s)
			}
			continue
		}
		complete, err := h.followOnce(ctx, s, conn)
		if ctx.Err() != nil {
			return
		}
		h.following.sayOnce(err)
		if !complete {
			again.Reset(zk.Jitter(followPause))
		}
	}
}

// sayOnce logs a problem, unless it is the last one that was logged.
func (f *following) sayOnce(err error) {
	text := ""
	if err != nil && !group.IsTransient(err) {
		text = err.Error()
	}
	if text != f.said && text != "" {
		f.log.Warn("zookeeper.follow: not all servers of the ensemble are used", "reason", text)
	}
	f.said = text
}

// followOnce reads the ensemble's configuration, and uses those of its servers that prove to have the group. It
// returns false if it must be called again, and why not all are used.
func (h *Host) followOnce(ctx context.Context, s *session, conn *zk.Group) (complete bool, err error) {
	root, id := h.knownGroup()
	if id == "" {
		return false, nil // no group has registered yet
	}
	reading, cancel := context.WithTimeout(ctx, s.granted)
	defer cancel()
	data, _, err := conn.Get(reading, zk.EnsemblePath, true)
	if err != nil {
		return false, fmt.Errorf("cannot read znode %s: %w", zk.EnsemblePath, err)
	}
	ensemble, err := zk.ParseEnsembleConfig(data)
	if err != nil {
		return true, err
	}
	if ensemble.Version < h.following.version { // that of a server that lags behind
		h.log.Debug("ignored an older configuration of the ensemble", "version", fmt.Sprintf("%x", ensemble.Version))
		return true, nil
	}
	known := h.following.list()
	var asked []string
	for _, server := range ensemble.Servers {
		if !slices.Contains(known, server) && !slices.Contains(h.config().ZooKeeper.Servers, server) {
			asked = append(asked, server)
		}
	}
	found, err := s.zk.ProveServers(ctx, asked, root, id, true)
	if err != nil {
		return false, err
	}
	var followed, unused []string
	for _, server := range ensemble.Servers {
		why, isAsked := found[server]
		switch {
		case isAsked && why == nil, slices.Contains(known, server):
			followed = append(followed, server)
		case isAsked:
			if !errors.As(why, new(*zk.ForeignServerError)) {
				why = fmt.Errorf("%s: %w", server, why)
			}
			unused = append(unused, why.Error())
		}
	}
	h.following.version = ensemble.Version
	if h.following.set(followed) {
		h.log.Info("followed the ensemble's reconfiguration", "version", fmt.Sprintf("%x", ensemble.Version), "servers",
			h.servers())
		h.applyAccess(s)
	}
	if len(unused) > 0 {
		return false, errors.New(strings.Join(unused, "; "))
	}
	return true, nil
}

// The servers of the ensemble can change while a session goes on: by a reload, or by [Host.follow]. See
// [zk.Session.ProveServers] for why they must prove first what they are.

// knownGroup returns the root and the id of one of the host's groups; empty if it was in none yet. All groups are on
// the same servers.
func (h *Host) knownGroup() (root, id string) {
	for _, r := range h.resources() {
		if joined := r.joined.Load(); joined != nil && joined.ID != "" {
			return r.root, joined.ID
		}
	}
	return "", ""
}

// checkServers returns an error unless the servers of a configuration are those in force, or have this host's groups:
// more than half of them must prove it, also one that is added, and none may be of another ensemble.
func (h *Host) checkServers(ctx context.Context, s *session, next Reloaded) error {
	servers := next.Host.Config.ZooKeeper.Servers
	if sameServers(servers, h.config().ZooKeeper.Servers) {
		return nil
	}
	root, id := h.knownGroup()
	if id == "" {
		return errors.New("zookeeper.servers: this host takes part in no group, whose id shows which servers are " +
			"right: restart zkelectd to use the new ones")
	}
	found, err := s.zk.ProveServers(ctx, servers, root, id, false) // its servers may be gone
	if err != nil {
		return fmt.Errorf("zookeeper.servers: cannot find out whether the new servers are right; run "+
			"'zkelectd reload' again: %w", err)
	}
	var foreign, silent []string
	for _, server := range servers {
		switch err := found[server]; {
		case err == nil:
		case errors.As(err, new(*zk.ForeignServerError)):
			foreign = append(foreign, err.Error())
		default:
			silent = append(silent, fmt.Sprintf("%s: %v", server, err))
		}
	}
	now := h.config().ZooKeeper.Servers
	added := slices.DeleteFunc(slices.Clone(servers), func(server string) bool { return slices.Contains(now, server) })
	if len(added) == 0 {
		added = servers
	}
	proven := func(server string) bool { return found[server] == nil }
	const remain = "the servers remain %s"
	switch inForce := fmt.Sprintf(remain, strings.Join(now, ", ")); {
	case len(foreign) > 0:
		return fmt.Errorf("zookeeper.servers: not all are of this group's ensemble, so %s: %s", inForce,
			strings.Join(append(foreign, silent...), "; "))
	case !slices.ContainsFunc(added, proven):
		return fmt.Errorf("zookeeper.servers: none of the new servers answers, so %s: %s", inForce,
			strings.Join(silent, "; "))
	case 2*len(silent) >= len(servers):
		return fmt.Errorf("zookeeper.servers: only %d of %d servers answer, so %s: %s", len(servers)-len(silent),
			len(servers), inForce, strings.Join(silent, "; "))
	case len(silent) > 0:
		h.log.Warn("some of the new servers do not answer", "servers", strings.Join(silent, "; "))
	}
	return nil
}

// sameServers reports whether two lists have the same servers, in any order.
func sameServers(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// applyAccess makes the session, the guard and the state directory use how the configuration in force, and what was
// followed, connect to ZooKeeper.
func (h *Host) applyAccess(s *session) {
	h.applying.Lock()
	defer h.applying.Unlock()
	servers := h.servers()
	if !sameServers(servers, s.zk.Servers()) {
		s.zk.SetServers(servers)
		h.log.Info("the next connection leads to other ZooKeeper servers", "servers", servers)
	}
	h.opt.Guard.SetAccess(servers, operator.EncodeAccess(operator.Access(h.config(), os.Getenv)))
	for _, r := range h.resources() {
		if r.joined.Load() != nil {
			r.recordJoined("")
		}
	}
}
