package config

import (
	"net"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// ZooKeeper configures the ensemble and the group in it.
type ZooKeeper struct {
	Servers        []string      `yaml:"servers" default:"127.0.0.1:2181" doc:"The servers of the ensemble, as host:port. Each address of a name is tried like a server of its own."`
	Root           string        `yaml:"root" scope:"host, group" default:"/cluster" doc:"The group's root znode, created if it does not exist. Daemons with the same root elect one leader."`
	SessionTimeout time.Duration `yaml:"session_timeout" min:"2s" max:"10m" default:"6s" doc:"The session timeout to request; a server grants between 2 and 20 times its tickTime. The lease is 45% of the smallest timeout that may be granted."`
	// MinSessionTimeout is the smallest session timeout that a server may grant; 0 for the one that was granted first.
	MinSessionTimeout time.Duration `yaml:"min_session_timeout" doc:"The smallest session timeout that any server of the ensemble may grant; the lease is computed from it. Set it if the servers have different values of maxSessionTimeout. With 0s zkelectd assumes that every server grants at least what the first one granted."`
	ConnectTimeout    time.Duration `yaml:"connect_timeout" doc:"How long to try to connect for the first time before giving up. With 0s the daemon tries forever, and a command for 10s."`
	SessionFile       string        `yaml:"session_file" doc:"The file (mode 0600) with the session's id and password and the pending hooks. If guard and daemon were killed together, 'zkelectd release' and the next start read it to clean up. Only its user and root may have write access to the directory. Default: the file session in systemd's $RUNTIME_DIRECTORY; without that directory, none."`
	Auth              Auth          `yaml:"auth"`
	ACL               string        `yaml:"acl" oneof:"open, readable, private" default:"open" reload:"yes" doc:"Who can access the znodes that are created: private (only the users of zookeeper.auth.file), readable (everyone can read) or open (everyone can do everything). Use open for demos and tests only. See docs/security.md."`
	TLS               TLS           `yaml:"tls"`
}

// Auth configures how daemons and commands authenticate.
type Auth struct {
	File string `yaml:"file" reload:"yes" doc:"A file with lines user:password for ZooKeeper's digest scheme, mode 0600 or 0400, the same on all hosts. Each of these users has all rights to the znodes that are created. A name without a slash is a systemd credential (LoadCredential=). See docs/security.md."`
}

// TLS configures TLS on the connections to ZooKeeper.
type TLS struct {
	CA         string `yaml:"ca" doc:"A PEM file with the CAs to trust. With this or another setting of zookeeper.tls, the servers are connected to by TLS (1.2 or later); zookeeper.servers must then name their secureClientPort. Default: the CAs of the system. A name without a slash is a systemd credential."`
	Cert       string `yaml:"cert" doc:"A PEM file with this host's certificate, for servers that require one; needs zookeeper.tls.key."`
	Key        string `yaml:"key" doc:"The PEM file with the private key of zookeeper.tls.cert; other users must not be able to read it."`
	ServerName string `yaml:"server_name" doc:"The name that the servers' certificates must have. Default: the host in zookeeper.servers."`
}

// aclOpen is the value of zookeeper.acl with which everyone can do everything.
const aclOpen = "open"

// SecretFile returns the path of a file that a setting names, and whether it is a systemd credential. A name without a slash
// stands for a credential in $CREDENTIALS_DIRECTORY.
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

func (c *Config) checkZooKeeper(report func(string, string, ...any)) {
	z := &c.ZooKeeper
	z.checkServers(report)
	z.checkRoot(report)
	if z.MinSessionTimeout != 0 && (z.MinSessionTimeout < 2*time.Second || z.MinSessionTimeout > z.SessionTimeout) {
		report("zookeeper.min_session_timeout", "%s is neither 0s nor between 2s and zookeeper.session_timeout (%s)", z.MinSessionTimeout, z.SessionTimeout)
	}
	if (z.ACL == "readable" || z.ACL == "private") && z.Auth.File == "" {
		report("zookeeper.acl", "%q needs zookeeper.auth.file, which lists the users that can access the znodes", z.ACL)
	}
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
		host, port, err := net.SplitHostPort(server)
		if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
			report("zookeeper.servers", "%q is not host:port", server)
		}
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
