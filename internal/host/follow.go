package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
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

	mu      sync.Mutex
	servers []string // those that have proven to have the group
}

// list returns the servers that were followed.
func (f *following) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers
}

// set replaces the servers that were followed, and reports whether that changes anything.
func (f *following) set(servers []string) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = !slices.Equal(f.servers, servers)
	f.servers = servers
	return changed
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
		h.log.Info("followed the ensemble's reconfiguration", "version", fmt.Sprintf("%x", ensemble.Version), "servers", h.servers())
		h.applyAccess(s)
	}
	if len(unused) > 0 {
		return false, errors.New(strings.Join(unused, "; "))
	}
	return true, nil
}
