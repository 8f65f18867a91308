package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"zkelectd/internal/operator"
	"zkelectd/internal/zk"
)

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
		return errors.New("zookeeper.servers: this host takes part in no group, whose id shows which servers are right: restart zkelectd to use the new ones")
	}
	found, err := s.zk.ProveServers(ctx, servers, root, id, false) // its servers may be gone
	if err != nil {
		return fmt.Errorf("zookeeper.servers: cannot find out whether the new servers are right; run 'zkelectd reload' again: %w", err)
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
		return fmt.Errorf("zookeeper.servers: not all are of this group's ensemble, so %s: %s", inForce, strings.Join(append(foreign, silent...), "; "))
	case !slices.ContainsFunc(added, proven):
		return fmt.Errorf("zookeeper.servers: none of the new servers answers, so %s: %s", inForce, strings.Join(silent, "; "))
	case 2*len(silent) >= len(servers):
		return fmt.Errorf("zookeeper.servers: only %d of %d servers answer, so %s: %s", len(servers)-len(silent), len(servers), inForce, strings.Join(silent, "; "))
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
