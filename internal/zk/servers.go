package zk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// The servers of a session can be replaced while it goes on. One of another ensemble among them would end it, or
// worse, become the ensemble of the next session, with another leader. So a server must prove first that it has the
// group, over a connection of its own.

// Servers returns the servers of the session, as host:port.
func (s *Session) Servers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opt.Servers
}

// SetServers makes later connections lead to these servers; the session and its connection go on.
// [Session.ProveServers] says which servers are safe.
func (s *Session) SetServers(servers []string) {
	s.ensemble.running.Lock()
	defer s.ensemble.running.Unlock()
	s.ensemble.on = nil // what was found was about the old ones
	shuffled := slices.Clone(servers)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opt.Servers, s.hosts.servers = slices.Clone(servers), shuffled
	maps.DeleteFunc(s.serverErrors, func(server string, _ error) bool { return !slices.Contains(servers, server) })
}

// ForeignServerError is the error for a server that has answered, and has not the group.
type ForeignServerError struct {
	Server string
	Found  string
}

func (e *ForeignServerError) Error() string { return e.Server + " " + e.Found }

// ProveServers returns for each of some servers nil if it has the group with that root and id, a [ForeignServerError]
// if it has not, and else why it has not answered, which proves nothing. A copy of the group's data on other servers
// has the id, too: while the session is connected, a server must also know a session that was opened there. connected
// makes it an error if it is not.
func (s *Session) ProveServers(ctx context.Context, servers []string, root, id string,
	connected bool) (map[string]error, error) {
	found := make(map[string]error)
	conn := s.liveConn()
	if connected && conn == nil {
		return nil, fmt.Errorf("%w: no connection to ZooKeeper", cluster.ErrNotSent)
	}
	if conn != nil && len(servers) > 0 { // first: a proof presents passwords
		doubts, err := s.compareServers(ctx, conn, servers)
		if err != nil {
			return nil, err
		}
		for server, doubt := range doubts {
			if found[server] = doubt; errors.Is(doubt, errForeign) {
				found[server] = &ForeignServerError{server, "does not know a session of " + conn.addr + ": " + doubt.Error()}
			}
		}
	}
	for _, server := range servers {
		if found[server] == nil {
			found[server] = s.proveServer(ctx, server, root, id)
		}
	}
	return found, ctx.Err()
}

// proveServer asks all addresses of a server's name: one that is foreign counts, else one that has the group.
func (s *Session) proveServer(ctx context.Context, server, root, id string) (err error) {
	limit := min(ensembleLimit, s.Timeout()/4)
	lookup, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addresses, err := ServerAddresses(lookup, server)
	proven := false
	for _, address := range addresses {
		noGroup := s.closer(s.opt.dialer.at(address)).askGroup(ctx, limit, server, root, id)
		switch foreign := new(ForeignServerError); {
		case errors.As(noGroup, &foreign):
			return noGroup
		case noGroup == nil:
			proven = true
		default:
			err = noGroup
		}
	}
	if proven {
		return nil
	}
	return err
}

// askGroup asks an address of a server, in a session of its own, for the record of a group's root.
func (u sessionCloser) askGroup(ctx context.Context, limit time.Duration, server, root, id string) error {
	var data []byte
	err := askWithin(ctx, limit, func(ctx context.Context) (err error) {
		data, err = u.readSynced(ctx, server, root)
		return err
	})
	read := cluster.ReadIdentity(root, data, cluster.Stat{}, err == nil)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return &ForeignServerError{server, "has no znode " + root}
	case errors.Is(err, cluster.ErrNoAuth):
		return &ForeignServerError{server, fmt.Sprintf("does not permit this user to read znode %s", root)}
	case err != nil:
		return err
	case read.Err != nil:
		return &ForeignServerError{server, "has another record: " + read.Err.Error()}
	case read.Record.ID == "":
		return &ForeignServerError{server, fmt.Sprintf("has a znode %s without an id of a group", root)}
	case read.Record.ID != id:
		return &ForeignServerError{server, fmt.Sprintf("has another group at %s: its id is %s, and not %s", root,
			strings.ToValidUTF8(read.Record.ID, "?"), id)}
	}
	return nil
}

// readSynced reads a znode in a new session, which it closes again.
func (u sessionCloser) readSynced(ctx context.Context, server, path string) ([]byte, error) {
	conn, hangUp, err := u.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	if _, err = u.open(conn); err != nil {
		return nil, err
	}
	defer func() { _ = call(conn, 2, wireOpClose, nil) }() // else it expires
	if err = u.present(ctx, conn, server); err == nil {
		err = call(conn, 1, wireOpSync, appendBuffer(nil, []byte(path)))
	}
	if err != nil {
		return nil, err
	}
	return getData(conn, path)
}
