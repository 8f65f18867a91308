package zkstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Options are what a session needs.
type Options struct {
	// Servers are host:port.
	Servers []string
	// Timeout is T as requested; the server may clamp it, see [Session.Timeout].
	Timeout time.Duration
	Access  Access
	// Dial opens connections; nil for what Access says.
	Dial DialFunc
	Log  *slog.Logger

	identities identities // read from Access
}

// Access is how to connect to a group's tree, and who may use what is created there. It names files and holds no secret, so
// it can be kept. The files are read when they are needed: a replaced certificate counts from the next connection on,
// replaced credentials from the next session or [Session.Present] on.
type Access struct {
	Auth AuthFile `json:"auth,omitzero"`
	ACL  ACL      `json:"acl,omitempty"`
	TLS  TLS      `json:"tls,omitzero"`
}

// ACL is what others may do with the znodes that a session creates.
type ACL string

// The kinds of [ACL]; the zero value is open.
const (
	ACLOpen     ACL = "open"
	ACLReadable ACL = "readable"
	ACLPrivate  ACL = "private"
)

// Open reports whether everybody may do everything.
func (a ACL) Open() bool { return a == "" || a == ACLOpen }

// list names each identity instead of using ZooKeeper's scheme auth, which stands for all that the connection has ever
// presented: an identity that was removed from the file, or a TLS certificate, would keep its rights.
func (a ACL) list(who identities) []zk.ACL {
	if a.Open() {
		return zk.WorldACL(zk.PermAll)
	}
	var list []zk.ACL
	for _, i := range who.all {
		list = append(list, zk.ACL{Perms: zk.PermAll, Scheme: i.scheme, ID: i.id()})
	}
	if a == ACLReadable {
		list = append(list, zk.WorldACL(zk.PermRead)...)
	}
	return list
}

// Check reads the files that are named and returns what is wrong with them.
func (a Access) Check() error {
	_, err := a.identities()
	if a.TLS.Enabled {
		_, tlsErr := a.TLS.config()
		err = errors.Join(err, tlsErr)
	}
	return err
}

// identities returns who a session presents itself as. An ACL that is not open needs at least one identity.
func (a Access) identities() (identities, error) {
	who, err := a.Auth.read()
	switch {
	case err != nil || len(who.all) > 0 || a.ACL.Open():
		return who, err
	case a.Auth.Path == "":
		return who, fmt.Errorf("zookeeper.acl: %q needs zookeeper.auth.file", a.ACL)
	}
	return who, fmt.Errorf("zookeeper.acl: %q needs credentials, but the unit's credential %s is empty: is the file there that LoadCredential= names?", a.ACL, a.Auth.Path)
}
