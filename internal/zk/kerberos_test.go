package zk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/kdc"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk/sasl"
)

// kerberosSite is a realm with a server.
type kerberosSite struct {
	t      *testing.T
	kdc    *kdc.KDC
	server *zkserver.Server
	proxy  *faultproxy.Proxy
}

// newKerberosSite starts a KDC and a server whose principal is zookeeper/localhost.
func newKerberosSite(t *testing.T, extra ...string) *kerberosSite {
	t.Helper()
	k, err := kdc.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	f := &kerberosSite{t: t, kdc: k}
	opt := zkserver.Options{Tick: 100 * time.Millisecond, ExtraConfig: extra}
	opt, err = zkserver.WithKerberos(opt, t.TempDir(), "zookeeper/localhost@"+kdc.Realm, f.add("zookeeper/localhost", time.Hour), k.Conf)
	if err != nil {
		t.Fatal(err)
	}
	f.server = startServer(t, opt)
	f.proxy = faultproxy.ForTest(t, f.server.Addr())
	return f
}

// add creates a principal, or gives it new keys, and returns its keytab.
func (f *kerberosSite) add(principal string, life time.Duration) string {
	f.t.Helper()
	keytab := filepath.Join(f.t.TempDir(), "keytab")
	if err := f.kdc.Add(f.t.Context(), principal, keytab, life); err != nil {
		f.t.Fatal(err)
	}
	return keytab
}

// at returns the address of a proxy or a server with the name of its principal.
func at(addr string) string { return strings.Replace(addr, "127.0.0.1", "localhost", 1) }

// options returns the options for a session through the proxy.
func (f *kerberosSite) options(k sasl.Kerberos) Options {
	k.Krb5Conf = f.kdc.Conf
	return Options{Servers: []string{at(f.proxy.Addr())}, Timeout: 30 * time.Second, Access: Access{SASL: SASL{Kerberos: k}, ACL: ACLPrivate}}
}

// stopKDC stops the KDC and returns a function that starts it again.
func (f *kerberosSite) stopKDC() (restart func()) {
	f.kdc.Stop()
	return func() {
		if err := f.kdc.Restart(f.t.Context(), 0); err != nil {
			f.t.Fatal(err)
		}
	}
}

// reconnects breaks the connection and waits for the next one.
func (f *kerberosSite) reconnects(s *Session) {
	f.t.Helper()
	before := s.Reconnects()
	f.proxy.Reset(false)
	eventually(f.t, "a connection", func() bool { return s.Reconnects() > before && s.Connected() })
}

// refuses breaks the connection and waits until the next one fails for a reason, while the session goes on.
func (f *kerberosSite) refuses(s *Session, reasons ...string) {
	f.t.Helper()
	server := at(f.proxy.Addr())
	f.proxy.Reset(false)
	eventually(f.t, "a refused connection", func() bool {
		err := s.serverError(server)
		return err != nil && strings.Contains(err.Error(), reasons[0])
	})
	contains(f.t, s.serverError(server), reasons...)
	if s.Err() != nil {
		f.t.Errorf("the session has ended: %v", s.Err())
	}
}

func TestKerberos(t *testing.T) {
	f := newKerberosSite(t)
	conf := f.kdc.Conf

	t.Run("login", func(t *testing.T) {
		opt := f.options(sasl.Kerberos{Keytab: f.add("zkelectd", time.Hour)})
		s := open(t, opt)
		p := root(t, s)
		createAllZnodes(t, s, p)
		const want = "sasl:zkelectd@EXAMPLE.ORG:cdrwa" // what the server says
		if got := s.ConfiguredACL(); got != want {
			t.Errorf("creates znodes with %s", got)
		}
		if err := s.ApplyACLs(t.Context(), p, "test", func(z ZnodeACL) { t.Errorf("changed %s", z.Path) }); err != nil {
			t.Error(err)
		}
		if err := s.CheckOwner(t.Context(), p.Root); err != nil {
			t.Error(err)
		}
		if err := s.CheckEnsemble(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := InspectServer(t.Context(), opt.Access, opt.Servers[0], f.server.Addr(), time.Second); err != nil {
			t.Error(err)
		}
		// With a valid ticket a KDC that is away does not matter.
		restart := f.stopKDC()
		f.reconnects(s)
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Data: []byte("x"), Version: cluster.AnyVersion}); err != nil {
			t.Error(err)
		}
		if err := CloseSession(t.Context(), s.Handle()); err != nil {
			t.Error(err)
		}
		eventually(t, "the end", ended(s))
		restart()
		// Another principal is somebody else.
		other := open(t, f.options(sasl.Kerberos{Keytab: f.add("other", time.Hour)}))
		contains(t, other.CheckOwner(t.Context(), p.Root), "cannot read", "this session is sasl:other@EXAMPLE.ORG, and has no permission")
	})

	t.Run("expiry and renewal", func(t *testing.T) {
		const life = 4 * time.Second
		opt := f.options(sasl.Kerberos{Keytab: f.add("short", life)})
		s := open(t, opt)
		issued := f.kdc.Issued("short")
		eventually(t, "a renewed ticket", func() bool { return f.kdc.Issued("short") > issued })
		f.reconnects(s)
		// The KDC is away, and the ticket expires: the session goes on as long as its connection does, and a new one says why not.
		restart := f.stopKDC()
		stopped := time.Now()
		eventually(t, "the end of the ticket", func() bool { return time.Since(stopped) > life })
		if !s.Connected() {
			t.Error("the connection has ended with the ticket")
		}
		f.refuses(s, "no KDC of EXAMPLE.ORG answers: is it up")
		restart()
		eventually(t, "a connection", s.Connected)
		// The guard closes the session of a dead daemon without a valid ticket, as soon as there is a KDC.
		restart = f.stopKDC()
		stopped = time.Now()
		eventually(t, "the end of the ticket", func() bool { return time.Since(stopped) > life })
		s.end(errors.New("dead")) // alive, it would reattach to its session
		contains(t, CloseSession(t.Context(), s.Handle()), "the server demands SASL", "cannot authenticate by SASL: ", "no KDC of EXAMPLE.ORG answers")
		restart()
		eventually(t, "the end of the session", func() bool { return CloseSession(t.Context(), s.Handle()) == nil })
	})

	t.Run("replaced keytab", func(t *testing.T) {
		const life = 4 * time.Second
		keytab := f.add("replaced", life)
		opt := f.options(sasl.Kerberos{Keytab: keytab})
		s := open(t, opt)
		opened := time.Now()
		next := f.add("replaced", life) // the old keys are no longer valid
		testhelper.Eventually(t, 10*time.Second, "the end of the ticket", func() bool { return time.Since(opened) > life })
		f.refuses(s, "the keys of replaced@EXAMPLE.ORG in "+keytab+" are not its current ones: export them again")
		data, err := os.ReadFile(next)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(keytab, data, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a connection", s.Connected)
	})

	t.Run("credential cache", func(t *testing.T) {
		keytab, cache := f.add("person", time.Hour), filepath.Join(t.TempDir(), "cache")
		if err := f.kdc.Login(t.Context(), "person", keytab, cache); err != nil {
			t.Fatal(err)
		}
		s := open(t, f.options(sasl.Kerberos{CredentialCache: cache}))
		if got := s.ConfiguredACL(); got != "sasl:person@EXAMPLE.ORG:cdrwa" {
			t.Errorf("creates znodes with %s", got)
		}
		brief := f.add("brief", 2*time.Second)
		if err := f.kdc.Login(t.Context(), "brief", brief, cache); err != nil {
			t.Fatal(err)
		}
		k := sasl.Kerberos{CredentialCache: cache, Krb5Conf: conf, Principal: "x"} // not the tickets from above
		testhelper.Eventually(t, 10*time.Second, "the end of the ticket", func() bool {
			_, err := k.NewExchange(t.Context(), "localhost")
			return err != nil && strings.Contains(err.Error(), "has expired") && strings.Contains(err.Error(), "run kinit, or use a keytab")
		})
	})

	t.Run("clock skew", func(t *testing.T) {
		keytab := f.add("skewed", time.Hour)
		f.kdc.Stop()
		if err := f.kdc.Restart(t.Context(), 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		refusedOpen(t, f.options(sasl.Kerberos{Keytab: keytab}), "this host's clock differs too much from that of the KDC of EXAMPLE.ORG")
		f.stopKDC()()
	})

	t.Run("mistakes", func(t *testing.T) {
		keytab := f.add("mistaken", time.Hour)
		for name, c := range map[string]struct {
			k      sasl.Kerberos
			server string
			want   string
		}{
			"unknown principal": {sasl.Kerberos{Keytab: keytab, Principal: "nobody"}, "", "has no key of nobody@EXAMPLE.ORG, but of mistaken@EXAMPLE.ORG"},
			"server's name":     {sasl.Kerberos{Keytab: keytab}, "127.0.0.1", "does not know the server's principal zookeeper/127.0.0.1@EXAMPLE.ORG: write the server's name"},
			"no krb5.conf":      {sasl.Kerberos{Keytab: keytab, Krb5Conf: "/no/krb5.conf"}, "", "zookeeper.sasl.krb5_conf: /no/krb5.conf cannot be read"},
			"not a keytab":      {sasl.Kerberos{Keytab: conf}, "", "contains no keys of Kerberos"},
		} {
			opt := f.options(c.k)
			if c.k.Krb5Conf != "" {
				opt.Access.SASL.Kerberos.Krb5Conf = c.k.Krb5Conf
			}
			if c.server != "" {
				opt.Servers = []string{f.proxy.Addr()}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := opt.Access.SASL.start(ctx, opt.Servers[0])
			cancel()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	// A server that cannot say which identity a principal has gets no open znodes by default, except below an open root.
	t.Run("a server that cannot tell the identity", func(t *testing.T) {
		opt := f.options(sasl.Kerberos{Keytab: f.add("zkelectd", time.Hour)})
		opt.Access.ACL = ACLAuto
		opener := opt
		opener.Access.ACL = ACLOpen
		s, stranger := open(t, opt), open(t, opener)
		p := root(t, stranger)
		s.mu.Lock()
		s.cannotAsk = true // as with a server before 3.7
		s.mu.Unlock()
		f.reconnects(s)
		create := cluster.Op{Kind: cluster.OpCreate, Path: "/unknown-identity"}
		_, err := s.Do(t.Context(), create)
		if contains(t, err, "anyone could change it", "set zookeeper.sasl.identity"); !errors.Is(err, cluster.ErrNoAuth) {
			t.Error(err)
		}
		if err := s.FollowRoot(t.Context(), p.Root, false); err != nil {
			t.Fatal(err)
		}
		create.Path = p.Heir()
		if _, err := s.Do(t.Context(), create); err != nil {
			t.Errorf("below an open root: %v", err)
		}
	})

	t.Run("a server that cannot prove itself", func(t *testing.T) {
		k := sasl.Kerberos{Keytab: f.add("careful", time.Hour), Krb5Conf: conf}
		f.add("zookeeper/localhost", time.Hour) // the server has the old key
		refusedOpen(t, f.options(k), "SASL: the server refuses the ticket: its log says why; often its keytab is not the current one")
	})
}

// The servers' settings decide what they make of a principal.
func TestServersSayWhichIdentityTheyGive(t *testing.T) {
	f := newKerberosSite(t, "kerberos.removeHostFromPrincipal=true", "kerberos.removeRealmFromPrincipal=true")
	opt := f.options(sasl.Kerberos{Keytab: f.add("zkelectd/host1", time.Hour)})
	s := open(t, opt)
	if got := s.ConfiguredACL(); got != "sasl:zkelectd:cdrwa" {
		t.Errorf("creates znodes with %s", got)
	}
	root(t, s)
}
