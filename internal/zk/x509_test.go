package zk

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// certificateSite has a server that demands certificates, and a proxy to it.
type certificateSite struct {
	testCAs
	server *zkserver.Server
}

func newCertificateSite(t *testing.T) certificateSite {
	tr := newTestCAs(t)
	return certificateSite{tr, tr.serve(tr.issue(tr.ca, "zk", time.Hour), true)}
}

// access returns the access with a new certificate.
func (f certificateSite) access(c zkserver.Certificate, identities ...string) Access {
	return Access{TLS: TLS{Enabled: true, CA: f.ca.CA, Cert: c.Cert, Key: c.Key}, ACL: ACLPrivate, Identities: identities}
}

// member opens a session with a new certificate.
func (f certificateSite) member(name string, identities ...string) *Session {
	f.t.Helper()
	return open(f.t, Options{Servers: []string{f.server.SecureAddr()}, Access: f.access(f.issue(f.ca, name, time.Hour), identities...)})
}

func TestCertificates(t *testing.T) {
	f := newCertificateSite(t)
	t.Run("one for all members", func(t *testing.T) {
		f.t = t
		c := f.issue(f.ca, "shared", time.Hour)
		access := f.access(c)
		s := open(t, Options{Servers: []string{f.server.SecureAddr()}, Access: access})
		p := root(t, s)
		createAllZnodes(t, s, p)
		if got := s.ConfiguredACL(); got != "x509:CN=shared:cdrwa" || fmt.Sprint(s.Tags()) != "[x509:CN=shared]" {
			t.Errorf("creates znodes with %s, tags %s", got, s.Tags())
		}
		if err := s.ApplyACLs(t.Context(), p, "test", func(z ZnodeACL) { t.Errorf("changed %s", z.Path) }); err != nil {
			t.Error(err)
		}
		if change, err := s.PresentCredentials(t.Context(), p, access); err != nil || change.Changed {
			t.Errorf("presented again: %+v, %v", change, err)
		}
		stranger := f.member("stranger")
		contains(t, stranger.CheckOwner(t.Context(), p.Root), "cannot read", "this session is x509:CN=stranger, and has no permission", "zookeeper.identities")
		if canRead(t, stranger, p.Leader()) {
			t.Error("another certificate gives access")
		}
		// The guard closes the session with the certificate.
		if err := CloseSession(t.Context(), s.Handle()); err != nil {
			t.Error(err)
		}
		eventually(t, "the end", ended(s))
	})

	t.Run("one for each member", func(t *testing.T) {
		f.t = t
		both := []string{"x509:CN=n1", "x509:CN=n2"}
		n1, n2 := f.member("n1", both...), f.member("n2", both...)
		p := root(t, n1)
		createAllZnodes(t, n1, p)
		if got := n2.ConfiguredACL(); got != "x509:CN=n1:cdrwa,x509:CN=n2:cdrwa" || fmt.Sprint(n2.Tags()) != "[x509:CN=n2]" {
			t.Errorf("creates znodes with %s, tags %s", got, n2.Tags())
		}
		if err := n2.CheckOwner(t.Context(), p.Root); err != nil {
			t.Error(err)
		}
		if err := n2.ApplyACLs(t.Context(), p, "test", func(z ZnodeACL) { t.Errorf("changed %s", z.Path) }); err != nil {
			t.Error(err)
		}
		// A third member is added to the list, first on the members and then on the znodes.
		three := append(both, "x509:CN=n3")
		access := n1.access
		access.Identities = three
		change, err := n1.PresentCredentials(t.Context(), p, access)
		if err != nil || change.Changed {
			t.Fatal(change, err)
		}
		change.Apply()
		if err := n1.ApplyACLs(t.Context(), p, "test", func(ZnodeACL) {}); err != nil {
			t.Error(err)
		}
		if n3 := f.member("n3", three...); !canRead(t, n3, p.Leader()) {
			t.Error("the third member has no access")
		}
		// A list without this host is refused, as are servers that do not ask for certificates.
		access.Identities = three[1:]
		_, err = n1.PresentCredentials(t.Context(), p, access)
		contains(t, err, `this host is "x509:CN=n1", which zookeeper.identities does not name`)
		refusedOpen(t, Options{Servers: []string{f.server.SecureAddr()}, Access: f.access(f.issue(f.ca, "n4", time.Hour), three...)}, `this host is "x509:CN=n4", which zookeeper.identities does not name`)
	})

	t.Run("in place of a password", func(t *testing.T) {
		f.t = t
		c := f.issue(f.ca, "changing", time.Hour)
		access := f.access(c)
		access.Auth = credentialsFile(t, "zkelectd:right")
		s := open(t, Options{Servers: []string{f.server.SecureAddr()}, Access: access})
		p := root(t, s)
		createAllZnodes(t, s, p)
		for _, step := range []func(){
			func() { access.Identities = []string{"x509:CN=changing"} },
			func() { access.Auth = AuthFile{} },
		} {
			step()
			change, err := s.PresentCredentials(t.Context(), p, access)
			if err != nil {
				t.Fatal(err)
			}
			change.Apply()
			if err := s.ApplyACLs(t.Context(), p, "test", func(ZnodeACL) {}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.DescribeACL(t.Context(), p.Root); err != nil || got != "x509:CN=changing:cdrwa" {
			t.Errorf("the root has %s, %v", got, err)
		}
	})

	t.Run("not asked for", func(t *testing.T) {
		f.t = t
		deaf := f.serve(f.issue(f.ca, "deaf", time.Hour), false)
		opt := Options{Servers: []string{deaf.SecureAddr()}, Access: f.access(f.issue(f.ca, "n5", time.Hour))}
		refusedOpen(t, opt, "the server has not asked for that of this host: set ssl.clientAuth=need there")
		opt.Access.ACL = ACLAuto // the default refuses no session that an open tree takes
		if got := open(t, opt).ConfiguredACL(); got != "world:anyone:cdrwa" {
			t.Errorf("creates znodes with %s", got)
		}
	})
	t.Run("replaced", func(t *testing.T) { f.t = t; replacedCertificate(t, f) })
	t.Run("subjects", func(t *testing.T) { f.t = t; subjects(t, f) })
	t.Run("an old server", func(t *testing.T) { f.t = t; certificateWithOldServer(t, f) })
}

// A certificate that is replaced counts from the next connection on; one with another name only if the list has both.
func replacedCertificate(t *testing.T, f certificateSite) {
	px := faultproxy.ForTest(t, f.server.SecureAddr())
	for _, kind := range []string{"alone", "listed", "open"} {
		t.Run(kind, func(t *testing.T) {
			f.t = t
			access := f.access(f.issue(f.ca, "host", time.Hour))
			switch kind {
			case "listed":
				access.Identities = []string{"x509:CN=host", "x509:CN=renamed"}
			case "open":
				access.ACL = ACLOpen
			}
			s := open(t, Options{Servers: []string{px.Addr()}, Access: access})
			p := root(t, s)
			writes := func() {
				t.Helper()
				before := s.Reconnects()
				px.Reset(false)
				eventually(t, "a write", func() bool {
					_, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte("x")})
					return err == nil && s.Reconnects() > before
				})
			}
			replace := func(by *zkserver.Authority, name string) {
				t.Helper()
				c := f.issue(by, name, time.Hour)
				move(t, c.Key, access.TLS.Key)
				move(t, c.Cert, access.TLS.Cert)
			}
			writes()
			replace(f.other, "foreign")
			px.Reset(false)
			eventually(t, "the refusal", func() bool { return s.serverError(px.Addr()) != nil })
			contains(t, s.serverError(px.Addr()), "zookeeper.tls.cert "+access.TLS.Cert)
			f.issue(f.ca, "host", time.Hour)
			eventually(t, "a connection", s.Connected)
			writes()
			replace(f.ca, "renamed")
			if kind != "alone" {
				writes()
				if want := map[string]string{"listed": "[x509:CN=renamed]", "open": "[]"}[kind]; fmt.Sprint(s.Tags()) != want {
					t.Errorf("tags %s", s.Tags())
				}
				return
			}
			px.Reset(false)
			eventually(t, "the refusal", func() bool { return s.serverError(px.Addr()) != nil })
			contains(t, s.serverError(px.Addr()), "takes the session for x509:CN=renamed, another one for x509:CN=host")
			if s.Err() != nil {
				t.Error(s.Err())
			}
		})
	}
}

// The text of a subject is what the server makes of it, or empty.
func subjects(t *testing.T, f certificateSite) {
	for i, subject := range []pkix.Name{
		{CommonName: "host1.example.com", OrganizationalUnit: []string{"Ops"}, Organization: []string{"Example Inc."}, Country: []string{"DE"},
			Locality: []string{"Köln"}, Province: []string{"a/b"}, StreetAddress: []string{"x 1"}},
		{CommonName: "x", SerialNumber: "42"},
		{CommonName: "a=b"},
		{CommonName: "a, b"},
	} {
		c, err := f.ca.IssueTo(subject, fmt.Sprintf("subject%d", i), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		access := f.access(c)
		s := open(t, Options{Servers: []string{f.server.SecureAddr()}, Access: access})
		conn, err := access.dialer().dial(t.Context(), "tcp", f.server.SecureAddr())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		got, ours := s.Tags(), subjectOf(conn.(*tlsConn).asked)
		if (ours == "") != (i > 0) || i == 0 && fmt.Sprint(got) != "[x509:"+ours+"]" {
			t.Errorf("the server says %s, we %s", got, ours)
		}
		root(t, s) // it accepts the text in an ACL, and finds it again
	}
}

// A server that cannot say who a connection is gets ACLs with the text that its successors say.
func certificateWithOldServer(t *testing.T, f certificateSite) {
	s := open(t, Options{Servers: []string{f.server.SecureAddr()}, Access: f.access(f.issue(f.ca, "old", time.Hour))})
	conn, err := s.access.dialer().dial(t.Context(), "tcp", f.server.SecureAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.mu.Lock()
	s.cannotAsk = true
	s.mu.Unlock()
	own, err := s.identify(conn, nil)
	if err != nil || fmt.Sprint(own) != "[x509:CN=old]" {
		t.Errorf("got %v, %v", own, err)
	}
	if err := s.noteIdentities([]identity{{scheme: x509Scheme, name: "CN=else"}}); !errors.Is(err, cluster.ErrNoAuth) {
		t.Error(err)
	}
	// It is not known how the server writes this subject: that is no identity, and an error only where ACLs name
	// certificates.
	conn.(*tlsConn).asked = &x509.Certificate{Subject: pkix.Name{SerialNumber: "42"}}
	if own, err := s.identify(conn, nil); len(own) != 0 || !errors.Is(err, cluster.ErrNoAuth) {
		t.Errorf("got %v, %v", own, err)
	}
	s.access.Auth = credentialsFile(t, "zkelectd:right")
	if own, err := s.identify(conn, nil); len(own) != 0 || err != nil {
		t.Errorf("got %v, %v", own, err)
	}
}

// move replaces a file.
func move(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
