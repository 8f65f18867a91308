package zk

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/test/faultproxy"
)

// authConn is a connection that breaks when credentials are written to it while broken is set; if sent is set, after
// they were sent.
type authConn struct {
	net.Conn
	broken *atomic.Bool
	failed *atomic.Int32
	sent   bool
}

func (c authConn) Write(b []byte) (int, error) {
	if _, op := requestHead(b); !c.broken.Load() || op != wireOpAuth {
		return c.Conn.Write(b)
	}
	c.failed.Add(1)
	if !c.sent {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken")}
	}
	defer c.Conn.Close()
	return c.Conn.Write(b)
}

// If sending credentials fails on a reconnect, the library deadlocks and leaks a goroutine, which TestMain would detect.
func TestFailedAuthWriteDoesNotHang(t *testing.T) {
	var broken atomic.Bool
	var failed atomic.Int32
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}, Timeout: 30 * time.Second, Access: Access{Auth: credentialsFile(t, "zkelectd:secret"), ACL: ACLPrivate},
		dialer: dialBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return authConn{conn, &broken, &failed, false}, err
		})})
	p := root(t, s)
	broken.Store(true)
	px.Reset(false)
	eventually(t, "a failed write of credentials", func() bool { return failed.Load() > 0 })
	broken.Store(false)
	eventually(t, "a read as the creator", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Get(ctx, p.Leader(), false)
		return err == nil || s.Err() != nil
	})
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
}

func TestRefusedCredentialsEndOpen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server := newScriptedServer(t, replies(func(xid, op int32) []byte {
		if op == wireOpAuth {
			return encodePacket(xid, -115) // as of a server without that scheme
		}
		return encodePacket(xid, 0)
	}))
	access := Access{Auth: credentialsFile(t, "zkelectd:secret")}
	_, err := Open(ctx, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second, Access: access})
	contains(t, err, "refused the digest credentials")
	if ctx.Err() != nil {
		t.Error("Open returned only at the deadline")
	}
}
