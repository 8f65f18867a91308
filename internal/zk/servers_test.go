package zk

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
)

// record writes the record of a group's root.
func record(t *testing.T, s *Session, root, id string) {
	t.Helper()
	data := cluster.Encode(&cluster.Identity{Root: root, Kind: cluster.KindSingle, ID: id})
	if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: root, Data: data}); err != nil {
		t.Fatal(err)
	}
}

// Only servers of the session's ensemble that have the group with the same id prove anything. One that answers
// otherwise is foreign, and one that does not answer proves nothing.
func TestServersProveTheGroup(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	const nobody = "127.0.0.1:1"
	own, foreign := e.Addrs(), shared.Addr()
	s, other := open(t, Options{Servers: own[:1]}), open(t, Options{})
	record(t, s, "/proof", "A")
	record(t, s, "/proof-copied", "B")
	record(t, other, "/proof-copied", "B")
	record(t, s, "/proof-other", "C")
	record(t, s, "/proof-without", "")
	if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: "/proof-damaged", Data: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	const unproven = "(no answer)"
	prove := func(root, id string, servers ...string) map[string]string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		found, err := s.ProveServers(ctx, servers, root, id, false)
		if err != nil {
			t.Fatal(err)
		}
		said := make(map[string]string)
		for server, err := range found {
			switch {
			case err == nil:
			case errors.As(err, new(*ForeignServerError)):
				said[server] = err.Error()
			default:
				said[server] = unproven
			}
		}
		return said
	}
	if got := prove("/proof", "A", append(own, nobody)...); len(got) != 1 || got[nobody] != unproven {
		t.Errorf("the session's ensemble: %v", got)
	}
	named := strings.Replace(own[2], "127.0.0.1", "localhost", 1)
	if got := prove("/proof", "A", named); len(got) != 0 {
		t.Errorf("a server by a name: %v", got)
	}
	for root, c := range map[string]struct{ id, server, want string }{
		"/proof-nowhere": {"A", own[1], "has no znode /proof-nowhere"},
		"/proof-copied":  {"B", foreign, "does not know a session of " + own[0]}, // although its copy has the id
		"/proof-other":   {"D", own[1], "its id is C, and not D"},
		"/proof-without": {"A", own[1], "without an id"},
		"/proof-damaged": {"A", own[1], "znode /proof-damaged is not a zkelectd record"},
	} {
		if got := prove(root, c.id, c.server)[c.server]; !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", root, got)
		}
	}
	if s.Reconnects() != 0 || s.Err() != nil {
		t.Errorf("the session was disturbed: %d reconnects, %v", s.Reconnects(), s.Err())
	}
	// Without a connection, the id alone proves a server to who wants that.
	e.Servers[0].Kill()
	eventually(t, "the session is not connected", func() bool { return !s.Connected() })
	if _, err := s.ProveServers(t.Context(), []string{foreign}, "/proof-copied", "B", true); !errors.Is(err, cluster.ErrNotSent) {
		t.Errorf("a server with a copy of the group: %v", err)
	}
	if got := prove("/proof-copied", "B", foreign); len(got) != 0 {
		t.Errorf("a server with the id: %v", got)
	}
	s.SetServers(own[1:])
	eventually(t, "the session is connected again", s.Connected)
}

// A server is asked for the group over TLS, if that is enabled, or not at all: no port without TLS hears a password.
func TestProofsAreAskedOverTLS(t *testing.T) {
	tr := newTestCAs(t)
	server := tr.serve(tr.issue(tr.ca, "zk", time.Hour), false)
	access := Access{TLS: TLS{Enabled: true, CA: tr.ca.CA}, Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}
	s := open(t, Options{Servers: []string{server.SecureAddr()}, Access: access})
	record(t, s, "/proof-tls", "A")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heard := make(chan byte, 1)
	go func() { // ends when l is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			first := make([]byte, 1)
			if _, err := conn.Read(first); err == nil {
				select {
				case heard <- first[0]:
				default:
				}
			}
			conn.Close()
		}
	}()
	listening := l.Addr().String()
	found, err := s.ProveServers(t.Context(), []string{server.SecureAddr(), server.Addr(), listening}, "/proof-tls", "A", false)
	if err != nil || found[server.SecureAddr()] != nil {
		t.Fatal(found, err)
	}
	for _, plain := range []string{server.Addr(), listening} {
		if found[plain] == nil || errors.As(found[plain], new(*ForeignServerError)) {
			t.Errorf("a port without TLS: %v", found[plain])
		}
	}
	const handshake = 0x16
	if first := <-heard; first != handshake {
		t.Errorf("a port without TLS has heard 0x%x", first)
	}
}
