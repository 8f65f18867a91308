package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// startDigestServer starts a server that demands SASL with a password.
func startDigestServer(t *testing.T, user, password string) *zkserver.Server {
	t.Helper()
	opt, err := zkserver.WithPassword(zkserver.Options{Tick: 100 * time.Millisecond}, t.TempDir(), user, password)
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, opt)
}

func startServer(t *testing.T, opt zkserver.Options) *zkserver.Server {
	t.Helper()
	server := zkserver.ForTest(t, opt)
	return server
}

// refusedOpen checks that no session can be opened, for these reasons. Open tries until its context ends, so a busy machine gets more
// time only if the reasons are missing.
func refusedOpen(t *testing.T, opt Options, reasons ...string) {
	t.Helper()
	opt.Timeout = 10 * time.Second
	var err error
	for limit := 500 * time.Millisecond; limit < 40*time.Second; limit *= 3 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		s, opened := Open(ctx, opt)
		cancel()
		if err = opened; err == nil {
			closeSession(t, s)
			t.Fatal("a session was opened")
		}
		if !slices.ContainsFunc(reasons, func(r string) bool { return !strings.Contains(err.Error(), r) }) {
			return
		}
	}
	contains(t, err, reasons...)
}

func TestDigestMD5(t *testing.T) {
	server := startDigestServer(t, "zkelectd", "right")
	px := faultproxy.ForTest(t, server.Addr())
	password := credentialsFile(t, "zkelectd:right")
	access := Access{SASL: SASL{Password: password}, ACL: ACLPrivate}
	s := open(t, Options{Servers: []string{px.Addr()}, Access: access})
	p := root(t, s)
	createAllZnodes(t, s, p)
	if got := s.ConfiguredACL(); got != "sasl:zkelectd:cdrwa" || fmt.Sprint(s.Tags()) != "[sasl:zkelectd]" {
		t.Errorf("creates znodes with %s, tags %s", got, s.Tags())
	}
	if got, err := s.DescribeACL(t.Context(), p.Root); err != nil || got != "sasl:zkelectd:cdrwa" {
		t.Errorf("the root has %s, %v", got, err)
	}
	if err := s.ApplyACLs(t.Context(), p, "test", func(z ZnodeACL) { t.Errorf("changed %s", z.Path) }); err != nil {
		t.Error(err)
	}
	if change, err := s.PresentCredentials(t.Context(), p, access); err != nil || change.Changed {
		t.Errorf("presented again: %+v, %v", change, err)
	}
	if err := s.CheckEnsemble(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := InspectServer(t.Context(), access, server.Addr(), server.Addr(), time.Second); err != nil {
		t.Error(err)
	}

	// It authenticates again on each connection, before the first request.
	px.Reset(false)
	eventually(t, "a write after a reconnect", func() bool {
		_, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Data: []byte("x"), Version: cluster.AnyVersion})
		return err == nil && s.Reconnects() > 0
	})

	// A password that was replaced in the file only is refused at the next connection, but the session goes on.
	if err := os.WriteFile(password.Path, []byte("zkelectd:wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := s.Reconnects()
	px.Reset(false)
	eventually(t, "the refusal", func() bool { return s.serverError(px.Addr()) != nil })
	contains(t, s.serverError(px.Addr()), "refuses the user or the password in zookeeper.sasl.password_file")
	if err := os.WriteFile(password.Path, []byte("zkelectd:right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next connection", func() bool { return s.Reconnects() > before && s.Connected() })

	// Closing it from outside needs the password, too.
	e := SessionHandle{Servers: []string{server.Addr()}, Session: s.SessionID(), Password: s.Password()}
	s.end(errors.New("dead"))
	contains(t, CloseSession(t.Context(), e), "the server demands SASL: set zookeeper.sasl")
	e.Access = Access{SASL: SASL{Password: AuthFile{Path: "/no/file"}}}
	contains(t, CloseSession(t.Context(), e), "the server demands SASL", "cannot authenticate by SASL: zookeeper.sasl.password_file: /no/file cannot be read")
	e.Access = access
	if err := CloseSession(t.Context(), e); err != nil {
		t.Error(err)
	}

	// What an operator reads when it does not work.
	wrong := SASL{Password: credentialsFile(t, "zkelectd:wrong")}
	refusedOpen(t, Options{Servers: []string{server.Addr()}, Access: Access{SASL: wrong}}, "refuses the user or the password in zookeeper.sasl")
	refusedOpen(t, Options{Servers: []string{shared.Addr()}, Access: access}, "the server is not set up for SASL")
	free, err := Open(t.Context(), Options{Servers: []string{server.Addr()}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = free.Get(t.Context(), "/", false)
	contains(t, err, "the server demands SASL: set zookeeper.sasl")
	contains(t, free.Close(t.Context()), "the server demands SASL")
}

// A server that has not proven that it knows the password is not believed, and gets no request.
func TestDigestMD5ServerMustProveItself(t *testing.T) {
	requests := make(chan int32, 100)
	server := newScriptedServer(t, func(s *scriptedServer, c net.Conn) {
		if s.greet(c, 0x1234) != nil {
			return
		}
		step := 0
		answer(c, func(_ []byte, xid, op int32) []byte {
			requests <- op
			body := appendBuffer(nil, []byte(`realm="zk-sasl-md5",nonce="x",qop="auth",charset=utf-8,algorithm=md5-sess`))
			if step++; step > 1 {
				body = appendBuffer(nil, []byte("rspauth=00000000000000000000000000000000"))
			}
			return encodePacket(xid, 0, body...)
		})
	})
	access := Access{SASL: SASL{Password: credentialsFile(t, "zkelectd:right")}}
	refusedOpen(t, Options{Servers: []string{server.addr}, Access: access}, "SASL: the server does not know the password")
	for {
		select {
		case op := <-requests:
			if op != wireOpSASL {
				t.Errorf("it got a request %d", op)
			}
			continue
		default:
		}
		break
	}
}

// serverError returns the last error of a server.
func (s *Session) serverError(addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serverErrors[addr]
}
