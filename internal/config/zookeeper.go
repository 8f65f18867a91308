package config

import (
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// ZooKeeper configures the ensemble and the group in it.
type ZooKeeper struct {
	Servers        []string      `mapstructure:"servers"`
	Root           string        `mapstructure:"root"`
	SessionTimeout time.Duration `mapstructure:"session_timeout"`
	// MinSessionTimeout is the smallest session timeout that a server may grant; 0 for the one that was granted first.
	MinSessionTimeout time.Duration `mapstructure:"min_session_timeout"`
	ConnectTimeout    time.Duration `mapstructure:"connect_timeout"`
	SessionFile       string        `mapstructure:"session_file"`
	Auth              Auth          `mapstructure:"auth"`
	ACL               string        `mapstructure:"acl"`
	TLS               TLS           `mapstructure:"tls"`
}

// Auth configures how daemons and commands authenticate.
type Auth struct {
	File string `mapstructure:"file"`
}

// TLS configures TLS on the connections to ZooKeeper.
type TLS struct {
	Enabled    bool   `mapstructure:"enabled"`
	CA         string `mapstructure:"ca"`
	Cert       string `mapstructure:"cert"`
	Key        string `mapstructure:"key"`
	ServerName string `mapstructure:"server_name"`
}

// acls are the values of zookeeper.acl.
var acls = []string{"open", "readable", "private"}

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
	if z.SessionTimeout < 2*time.Second || z.SessionTimeout > 10*time.Minute {
		report("zookeeper.session_timeout", "%s is not between 2s and 10m", z.SessionTimeout)
	}
	if z.MinSessionTimeout != 0 && (z.MinSessionTimeout < 2*time.Second || z.MinSessionTimeout > z.SessionTimeout) {
		report("zookeeper.min_session_timeout", "%s is neither 0s nor between 2s and zookeeper.session_timeout (%s)", z.MinSessionTimeout, z.SessionTimeout)
	}
	switch {
	case !slices.Contains(acls, z.ACL):
		report("zookeeper.acl", "%q is not one of %s", z.ACL, strings.Join(acls, ", "))
	case z.ACL != acls[0] && z.Auth.File == "":
		report("zookeeper.acl", "%q needs zookeeper.auth.file, which lists the users that can access the znodes", z.ACL)
	}
	z.TLS.check(report)
}

func (t TLS) check(report func(string, string, ...any)) {
	for key, value := range map[string]string{"ca": t.CA, "cert": t.Cert, "key": t.Key, "server_name": t.ServerName} {
		if value != "" && !t.Enabled {
			report("zookeeper.tls."+key, "has no effect: set zookeeper.tls.enabled as well")
		}
	}
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
