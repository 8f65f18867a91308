package config

import (
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"zkelectd/internal/cluster"
)

// ZooKeeper configures the ensemble and the group in it.
type ZooKeeper struct {
	Servers        []string      `yaml:"servers" default:"127.0.0.1:2181" reload:"yes" doc:"The servers of the ensemble, as host:port, or as srv+NAME for SRV records. A reload refuses those of another ensemble. See docs/zookeeper.md."`
	Follow         bool          `yaml:"follow" reload:"yes" doc:"Use the servers that the ensemble is reconfigured to, too, as /zookeeper/config says. See docs/zookeeper.md."`
	Root           string        `yaml:"root" scope:"host, group" default:"/cluster" doc:"The group's root znode, which 'zkelectd init' creates. Daemons with the same root elect one leader."`
	SessionTimeout time.Duration `yaml:"session_timeout" min:"2s" max:"10m" default:"6s" doc:"The session timeout to request; a server grants between 2 and 20 times its tickTime. The lease is at most 45% of the smallest timeout that may be granted."`
	// MinSessionTimeout is the smallest session timeout that a server may grant; 0 for the one that was granted first.
	MinSessionTimeout time.Duration `yaml:"min_session_timeout" doc:"The smallest session timeout that any server of the ensemble may grant. Set it if their maxSessionTimeout differs: with 0s zkelectd assumes that every server grants what the first one granted."`
	ConnectTimeout    time.Duration `yaml:"connect_timeout" doc:"How long to try to connect for the first time before giving up. With 0s the daemon tries forever, and a command for 10s."`
	SessionFile       string        `yaml:"session_file" doc:"The file (mode 0600) with the session's id and password and the pending hooks, for 'zkelectd release' and the next start. Only its user and root may write the directory. Default: the file session in systemd's $RUNTIME_DIRECTORY, else none."`
	Auth              Auth          `yaml:"auth"`
	SASL              SASL          `yaml:"sasl"`
	ACL               string        `yaml:"acl" oneof:"auto, open, readable, private" default:"auto" reload:"yes" doc:"Who can access the znodes that are created: private (the users of zookeeper.auth.file and zookeeper.sasl, without both the certificate in zookeeper.tls), readable (everyone can read, too), open (everyone can do everything; for demos and tests only) or auto: private with one of these, except in a tree that is open, and else open. See docs/security.md."`
	TLS               TLS           `yaml:"tls"`
	Identities        []string      `yaml:"identities" reload:"yes" doc:"Where each member has a certificate or a principal of its own: those of all members, as x509:CN=host1,O=Example or sasl:zkelectd/host1@EXAMPLE.COM. See docs/security.md."`
}

// Auth configures how daemons and commands authenticate.
type Auth struct {
	File string `yaml:"file" reload:"yes" doc:"A file with lines user:password for ZooKeeper's digest scheme, mode 0600 or 0400, the same on all hosts. A name without a slash is a systemd credential (LoadCredential=). See docs/security.md."`
}

// SASL configures how each connection to ZooKeeper authenticates before anything else.
type SASL struct {
	PasswordFile    string `yaml:"password_file" doc:"A file with one line user:password, mode 0600 or 0400, for servers with SASL's mechanism DIGEST-MD5. It is read for each connection."`
	Keytab          string `yaml:"keytab" doc:"A keytab, mode 0600 or 0400, for servers with SASL's mechanism GSSAPI (Kerberos). It is read at each login."`
	CredentialCache string `yaml:"credential_cache" doc:"A credential cache of Kerberos in a file, in place of a keytab. Another program must renew its ticket."`
	Principal       string `yaml:"principal" doc:"The principal whose key in zookeeper.sasl.keytab is used. Default: the first one there."`
	ServerPrincipal string `yaml:"server_principal" default:"zookeeper/_HOST" doc:"The principal of the servers. _HOST stands for the name in zookeeper.servers, in lower case. Without @REALM, krb5.conf says which realm it is in."`
	Krb5Conf        string `yaml:"krb5_conf" default:"/etc/krb5.conf" doc:"The configuration of Kerberos. Its lines include and includedir are not followed."`
	Identity        string `yaml:"identity" doc:"The name that the servers give to the principal in ACLs. By default they are asked; those before 3.7 cannot say it."`
}

// Enabled reports whether SASL is used.
func (s SASL) Enabled() bool { return s.PasswordFile != "" || s.Kerberos() }

// Kerberos reports whether SASL's mechanism is that of Kerberos.
func (s SASL) Kerberos() bool { return s.Keytab != "" || s.CredentialCache != "" }

func (s SASL) check(report func(string, string, ...any)) {
	switch {
	case s.PasswordFile != "" && s.Kerberos():
		report("zookeeper.sasl.password_file", "is for DIGEST-MD5, and keytab and credential_cache for Kerberos: "+
			"set one of them")
	case s.Keytab != "" && s.CredentialCache != "":
		report("zookeeper.sasl.keytab", "cannot be used together with credential_cache: set one of them")
	case s.Principal != "" && s.Keytab == "":
		report("zookeeper.sasl.principal", "needs zookeeper.sasl.keytab")
	case s.Identity != "" && !s.Kerberos():
		report("zookeeper.sasl.identity", "needs zookeeper.sasl.keytab or .credential_cache")
	}
	if s.CredentialCache != "" && !filepath.IsAbs(s.CredentialCache) {
		report("zookeeper.sasl.credential_cache", "%q is not an absolute path", s.CredentialCache)
	}
	if !filepath.IsAbs(s.Krb5Conf) {
		report("zookeeper.sasl.krb5_conf", "%q is not an absolute path", s.Krb5Conf)
	}
}

// TLS configures TLS on the connections to ZooKeeper.
type TLS struct {
	CA         string `yaml:"ca" doc:"A PEM file with the CAs to trust; default: those of the system. With a setting of zookeeper.tls, zookeeper.servers must name the secureClientPort of the servers."`
	Cert       string `yaml:"cert" doc:"A PEM file with this host's certificate, for servers that require one; needs zookeeper.tls.key."`
	Key        string `yaml:"key" doc:"The PEM file with the private key of zookeeper.tls.cert; other users must not be able to read it."`
	ServerName string `yaml:"server_name" doc:"The name that the servers' certificates must have. Default: the host in zookeeper.servers."`
}

// aclOpen is the value of zookeeper.acl with which everyone can do everything, and aclAuto the default.
const (
	aclOpen = "open"
	aclAuto = "auto"
)

// SecretFile returns the path of a file that a setting names, and whether it is a systemd credential. A name without a
// slash stands for a credential in $CREDENTIALS_DIRECTORY.
func SecretFile(name string, getenv func(string) string) (file string, systemd bool) {
	dir := getenv("CREDENTIALS_DIRECTORY")
	switch {
	case strings.Contains(name, "/"):
		if absolute, err := filepath.Abs(name); err == nil {
			return absolute, false // 'zkelectd release' may run in another directory
		}
		return name, false
	case name == "" || dir == "":
		return name, false
	}
	return filepath.Join(dir, name), true
}

// LeaseBase returns the session timeout that a lease may rest on in a session with the timeout granted.
func (z ZooKeeper) LeaseBase(granted time.Duration) time.Duration {
	return cluster.Earliest(granted, z.MinSessionTimeout)
}

// Authenticates reports whether a session has an identity that ACLs can name.
func (z ZooKeeper) Authenticates() bool {
	return z.Auth.File != "" || z.SASL.Enabled() || z.TLS.Cert != ""
}

// maxIdentities bounds zookeeper.identities: each ACL contains them all.
const maxIdentities = 64

func (z ZooKeeper) checkIdentities(report func(string, string, ...any)) {
	const key = "zookeeper.identities"
	if len(z.Identities) > maxIdentities {
		report(key, "has more than %d entries: give the members certificates with the same subject", maxIdentities)
	}
	for i, text := range z.Identities {
		switch scheme, name, _ := strings.Cut(text, ":"); {
		case scheme != "x509" && scheme != "sasl" || name == "":
			report(key, "%q is neither x509:SUBJECT nor sasl:NAME (in an environment variable, commas separate entries)", text)
		case scheme == "x509" && z.TLS.Cert == "":
			report(key, "%q needs zookeeper.tls.cert", text)
		case scheme == "sasl" && !z.SASL.Enabled():
			report(key, "%q needs zookeeper.sasl", text)
		case strings.ContainsFunc(name, unicode.IsControl) || len(name) > 1024:
			report(key, "%q contains control characters, or is too long", text)
		case slices.Contains(z.Identities[:i], text):
			report(key, "contains %q twice", text)
		}
	}
}

func (c *Config) checkZooKeeper(report func(string, string, ...any)) {
	z := &c.ZooKeeper
	z.checkServers(report)
	z.checkRoot(report)
	if z.MinSessionTimeout != 0 && (z.MinSessionTimeout < 2*time.Second || z.MinSessionTimeout > z.SessionTimeout) {
		report("zookeeper.min_session_timeout", "%s is neither 0s nor between 2s and zookeeper.session_timeout (%s)",
			z.MinSessionTimeout, z.SessionTimeout)
	}
	if z.ACL == aclAuto && !z.Authenticates() {
		z.ACL = aclOpen
	}
	if (z.ACL == "readable" || z.ACL == "private") && !z.Authenticates() {
		report("zookeeper.acl", "%q needs zookeeper.auth.file, zookeeper.sasl or zookeeper.tls.cert, which say who "+
			"can access the znodes", z.ACL)
	}
	z.checkIdentities(report)
	z.SASL.check(report)
	z.TLS.check(report)
}

// Enabled reports whether TLS is used: whether any of its settings is set.
func (t TLS) Enabled() bool { return t != TLS{} }

func (t TLS) check(report func(string, string, ...any)) {
	switch {
	case t.Cert != "" && t.Key == "":
		report("zookeeper.tls.cert", "needs zookeeper.tls.key")
	case t.Key != "" && t.Cert == "":
		report("zookeeper.tls.key", "needs zookeeper.tls.cert")
	}
}

func (z *ZooKeeper) checkServers(report func(string, string, ...any)) {
	if len(z.Servers) == 0 {
		report("zookeeper.servers", "is empty: name at least one host:port")
	}
	for i, server := range z.Servers {
		server = withPort(server)
		z.Servers[i] = server
		if name, ok := strings.CutPrefix(server, cluster.SRVPrefix); ok {
			z.checkSRV(server, name, report)
			continue
		}
		if strings.Contains(server, "/") {
			report("zookeeper.servers", "%q has a path: write that in front of zookeeper.root", server)
			continue
		}
		host, port, err := net.SplitHostPort(server)
		if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
			report("zookeeper.servers", "%q is not host:port", server)
		}
	}
}

// checkSRV checks the name of SRV records. DNS says which hosts they are, so their names prove nothing.
func (z *ZooKeeper) checkSRV(server, name string, report func(string, string, ...any)) {
	switch {
	case !strings.HasPrefix(name, "_") || strings.Count(name, "._") != 1 || strings.ContainsAny(name, ":/ "):
		report("zookeeper.servers", "%q is not %s_SERVICE._PROTOCOL.DOMAIN, as in %[2]s_zookeeper._tcp.example.com",
			server, cluster.SRVPrefix)
	case z.TLS.Enabled() && z.TLS.ServerName == "":
		report("zookeeper.tls.server_name", "is needed with SRV records in zookeeper.servers: the name that all "+
			"servers' certificates have")
	case z.SASL.Kerberos() && strings.Contains(z.SASL.ServerPrincipal, "_HOST"):
		report("zookeeper.sasl.server_principal", "%q must be one name without _HOST with SRV records in "+
			"zookeeper.servers", z.SASL.ServerPrincipal)
	}
}

func (z *ZooKeeper) checkRoot(report func(string, string, ...any)) {
	switch {
	case !strings.HasPrefix(z.Root, "/"):
		report("zookeeper.root", "%q must begin with /", z.Root)
	case z.Root == "/":
		report("zookeeper.root", "must not be / itself: name a znode for the group, as in /cluster")
	case path.Clean(z.Root) != z.Root:
		report("zookeeper.root", "%q: write it as %q", z.Root, path.Clean(z.Root))
	case z.Root == "/zookeeper" || strings.HasPrefix(z.Root, "/zookeeper/"):
		report("zookeeper.root", "%q belongs to ZooKeeper itself", z.Root)
	default:
		for part := range strings.SplitSeq(z.Root[1:], "/") {
			if err := CheckName(part); err != nil {
				report("zookeeper.root", "%q %v", part, err)
			}
		}
	}
}
