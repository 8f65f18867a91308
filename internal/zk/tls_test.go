package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// testCAs has a CA, and another one that no server or client trusts.
type testCAs struct {
	t         *testing.T
	ca, other *zkserver.Authority
}

func newTestCAs(t *testing.T) testCAs {
	t.Helper()
	dir := t.TempDir()
	ca, err := zkserver.NewAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := zkserver.NewAuthority(dir, "other")
	if err != nil {
		t.Fatal(err)
	}
	return testCAs{t, ca, other}
}

func (tr testCAs) issue(by *zkserver.Authority, name string, lasts time.Duration) zkserver.Certificate {
	tr.t.Helper()
	c, err := by.Issue(name, time.Now().Add(lasts))
	if err != nil {
		tr.t.Fatal(err)
	}
	return c
}

// serve starts a server with a TLS port.
func (tr testCAs) serve(own zkserver.Certificate, clients bool) *zkserver.Server {
	tr.t.Helper()
	options := &zkserver.TLS{Chain: own.Chain, CA: tr.ca.CA, RequireClientCert: clients}
	return zkserver.ForTest(tr.t, zkserver.Options{TLS: options})
}

// refused checks that opening a session fails with an error that contains the server and the reasons.
func (tr testCAs) refused(addr string, access TLS, reasons ...string) {
	tr.t.Helper()
	access.Enabled = true
	refusedOpen(tr.t, Options{Servers: []string{addr}, Access: Access{TLS: access}}, append(reasons, addr)...)
}

func TestServerThatRequiresClientCertificates(t *testing.T) {
	tr := newTestCAs(t)
	server := tr.serve(tr.issue(tr.ca, "zk", time.Hour), true)
	addr := server.SecureAddr()
	own := tr.issue(tr.ca, "n1", time.Hour)
	good := TLS{Enabled: true, CA: tr.ca.CA, Cert: own.Cert, Key: own.Key}
	access := Access{TLS: good, Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}

	s := open(t, Options{Servers: []string{addr}, Access: access})
	p := root(t, s)
	leave := acquire(t, s, p)
	all := []string{p.Root, p.Nodes(), p.Election(), p.Leader(), leave[0].Path, p.Elected(), p.Current()}
	named := good
	named.ServerName = "zk"
	friend := open(t, Options{Servers: []string{addr}, Access: Access{TLS: named, Auth: access.Auth}})
	for _, path := range all {
		if _, _, err := friend.Get(t.Context(), path, false); err != nil {
			t.Error(err)
		}
	}
	// To ZooKeeper a certificate is an identity too. It gives no permissions, not even for znodes that were created with it.
	for name, c := range map[string]zkserver.Certificate{"n1": own, "n2": tr.issue(tr.ca, "n2", time.Hour)} {
		bare := open(t, Options{Servers: []string{addr}, Access: Access{TLS: TLS{Enabled: true, CA: tr.ca.CA, Cert: c.Cert, Key: c.Key}}})
		if canRead(t, bare, p.Leader()) {
			t.Errorf("the certificate of %s gives access to the tree without a password", name)
		}
	}
	// Closing the session of a dead daemon uses the same TLS settings.
	e := SessionHandle{Servers: []string{addr}, Session: s.SessionID(), Password: s.Password(), Finals: []*FinalTx{{Ops: leave}}}
	s.end(errors.New("dead")) // alive, it would reattach to its session
	if err := CloseSession(t.Context(), e); err == nil || errors.Is(err, ErrNoSuchSession) {
		t.Errorf("closed without TLS: %v", err)
	}
	e.Access = access
	if err := CloseSession(t.Context(), e); err != nil || !e.Finals[0].Applied || !hasLeft(t, friend, p) {
		t.Fatal(err, e.Finals[0].Err)
	}
	if err := CloseSession(t.Context(), e); !errors.Is(err, ErrNoSuchSession) {
		t.Errorf("closed twice: %v", err)
	}

	tr.refused(addr, TLS{CA: tr.ca.CA}, "TLS: the server rejected the connection", "requires a client certificate: set zookeeper.tls.cert", "remote error")
	foreign, old := tr.issue(tr.other, "foreign", time.Hour), tr.issue(tr.ca, "old", -time.Hour)
	tr.refused(addr, TLS{CA: tr.ca.CA, Cert: foreign.Cert, Key: foreign.Key}, "zookeeper.tls.cert "+foreign.Cert, "signed by a CA that the server trusts")
	tr.refused(addr, TLS{CA: tr.ca.CA, Cert: old.Cert, Key: old.Key}, "zookeeper.tls.cert "+old.Cert, "is it valid")
	tr.refused(addr, TLS{CA: tr.other.CA, Cert: own.Cert, Key: own.Key}, "the server's certificate is not signed by any CA in", "zookeeper.tls.ca "+tr.other.CA)
	tr.refused(addr, TLS{Cert: own.Cert, Key: own.Key}, "the system's roots: set zookeeper.tls.ca")
	tr.refused(addr, TLS{CA: tr.ca.CA, Cert: own.Cert, Key: own.Key, ServerName: "elsewhere"}, "for another name", "zookeeper.tls.server_name", "elsewhere")
	tr.refused(server.Addr(), good, "TLS: ", "secureClientPort") // the port without TLS
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Open(ctx, Options{Servers: []string{addr}, Timeout: 10 * time.Second})
	contains(t, err, addr, "zookeeper.tls.ca") // the port for TLS
}

func TestServerCertificateIsVerified(t *testing.T) {
	tr := newTestCAs(t)
	server := tr.serve(tr.issue(tr.ca, "zk", time.Hour), false)
	px := faultproxy.ForTest(t, server.SecureAddr())
	s := open(t, Options{Servers: []string{px.Addr()}, Access: Access{TLS: TLS{Enabled: true, CA: tr.ca.CA}}})
	p := root(t, s)
	// A connection that breaks is replaced.
	px.Reset(false)
	eventually(t, "a write after the cut", func() bool {
		_, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte("x")})
		return err == nil
	})
	// A renewed CA takes effect with the next connection, without a restart.
	ca := filepath.Join(t.TempDir(), "ca.pem")
	access := Access{TLS: TLS{Enabled: true, CA: ca}}
	for _, c := range []struct {
		by   *zkserver.Authority
		good bool
	}{{tr.other, false}, {tr.ca, true}} {
		data, err := os.ReadFile(c.by.CA)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(ca, data, 0o600); err != nil {
			t.Fatal(err)
		}
		conn, err := access.dialer().dial(t.Context(), "tcp", server.SecureAddr())
		if (err == nil) != c.good {
			t.Errorf("trusting %s: %v", c.by.CA, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	expired := tr.serve(tr.issue(tr.ca, "expired", -time.Minute), false)
	tr.refused(expired.SecureAddr(), TLS{CA: tr.ca.CA}, "TLS: the server's certificate has expired", "x509")
}

func TestTLSFilesAreChecked(t *testing.T) {
	tr := newTestCAs(t)
	own, other := tr.issue(tr.ca, "own", time.Hour), tr.issue(tr.ca, "else", time.Hour)
	loose := filepath.Join(t.TempDir(), "loose")
	if err := os.WriteFile(loose, []byte("key"), 0o644); err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	t.Chdir(here) // files there must not be taken for credentials
	if err := os.Symlink(tr.ca.CA, "ca"); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(here, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]TLS{
		"zookeeper.tls.ca: " + fifo + " is not a regular file":          {CA: fifo},
		"zookeeper.tls.ca: /no/ca cannot be read: no such file":         {CA: "/no/ca"},
		"zookeeper.tls.ca: ca has no slash":                             {CA: "ca"},
		"zookeeper.tls.ca: " + own.Key + " contains no PEM certificate": {CA: own.Key},
		"zookeeper.tls.cert: /no/cert cannot be read":                   {Cert: "/no/cert", Key: own.Key},
		"zookeeper.tls.key: /no/key cannot be read":                     {Cert: own.Cert, Key: "/no/key"},
		"zookeeper.tls.key: " + loose + " has mode 0644":                {Cert: own.Cert, Key: loose},
		own.Cert + " and " + other.Key + " do not match":                {Cert: own.Cert, Key: other.Key},
		"zookeeper.tls.cert and .key: " + own.Key:                       {Cert: own.Key, Key: own.Key},
	} {
		c.Enabled = true
		contains(t, Access{TLS: c}.Check(), want)
		_, err := Access{TLS: c}.dialer().dial(t.Context(), "tcp", shared.Addr())
		contains(t, err, want)
		c.Enabled = false
		if err := (Access{TLS: c}).Check(); err != nil {
			t.Errorf("not in use: %v", err)
		}
	}
	if err := (Access{TLS: TLS{Enabled: true, CA: tr.ca.CA, Cert: own.Cert, Key: own.Key}}).Check(); err != nil {
		t.Error(err)
	}
}

// Close must not send close_notify: a session that has ended must not send, and the write could block.
func TestTLSCloseSendsNothing(t *testing.T) {
	tr := newTestCAs(t)
	own := tr.issue(tr.ca, "zk", time.Hour)
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heard := make(chan []byte, 1)
	go func() {
		defer close(heard)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		if err := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: tls.VersionTLS12}).Handshake(); err == nil {
			after, _ := io.ReadAll(raw)
			heard <- after
		}
	}()
	conn, err := Access{TLS: TLS{Enabled: true, CA: tr.ca.CA}}.dialer().dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if after, shaken := <-heard; !shaken || len(after) > 0 {
		t.Errorf("handshake done %t, then %d bytes", shaken, len(after))
	}
}
