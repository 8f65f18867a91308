package zk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Options configure a session.
type Options struct {
	// Servers are the ZooKeeper servers, as host:port.
	Servers []string
	// Timeout is the requested session timeout T. The server may clamp it, see [Session.Timeout].
	Timeout time.Duration
	Access  Access
	// Avoid is the server that is tried last at first; empty for none.
	Avoid string
	// Dial opens connections. If it is nil, Access determines how.
	Dial DialFunc
	Log  *slog.Logger

	// Those of the dialer, if Dial is nil.
	visits func(ctx context.Context, servers []string) []string
	at     func(address string) DialFunc
}

// Access holds the credentials and TLS settings of a connection, and the ACL of the znodes that are created over it. It
// contains file names and no secrets, so it can be stored. The files are read when they are needed: a replaced certificate
// takes effect with the next connection, replaced credentials with the next session or call of [Session.PresentCredentials].
type Access struct {
	Auth AuthFile `json:"auth,omitzero"`
	SASL SASL     `json:"sasl,omitzero"`
	ACL  ACL      `json:"acl,omitempty"`
	TLS  TLS      `json:"tls,omitzero"`
}

// ACL determines what other ZooKeeper clients may do with the znodes that a session creates.
type ACL string

// The values of [ACL]. The zero value means open.
const (
	ACLOpen     ACL = "open"
	ACLReadable ACL = "readable"
	ACLPrivate  ACL = "private"
)

// Open reports whether every client has all permissions.
func (a ACL) Open() bool { return a == "" || a == ACLOpen }

// entries returns the ACL for ids. It names each identity instead of using ZooKeeper's scheme auth, which stands for every
// identity that the connection ever presented: one that was removed from the file, or a TLS certificate, would keep its
// permissions.
func (a ACL) entries(ids identities) []zk.ACL {
	if a.Open() {
		return zk.WorldACL(zk.PermAll)
	}
	var list []zk.ACL
	for _, i := range ids.all {
		list = append(list, zk.ACL{Perms: zk.PermAll, Scheme: i.scheme, ID: i.aclID()})
	}
	if a == ACLReadable {
		list = append(list, zk.WorldACL(zk.PermRead)...)
	}
	return list
}

// Check reads the files that a names and returns an error if any of them is missing or invalid.
func (a Access) Check() error {
	_, err := a.identities()
	err = errors.Join(err, a.SASL.check())
	if a.TLS.Enabled {
		_, tlsErr := a.TLS.config()
		err = errors.Join(err, tlsErr)
	}
	return err
}

// authKey is the setting with [Access.Auth].
const authKey = "zookeeper.auth.file"

// identities reads the identities that a session presents. An ACL that is not open needs at least one, or that of SASL.
func (a Access) identities() (identities, error) {
	ids, err := a.Auth.read(authKey)
	switch {
	case err != nil || len(ids.all) > 0 || a.ACL.Open() || a.SASL.Enabled():
		return ids, err
	case a.Auth.Path == "":
		return ids, fmt.Errorf("zookeeper.acl: %q needs %s or zookeeper.sasl", a.ACL, authKey)
	}
	return ids, fmt.Errorf("zookeeper.acl: %q needs credentials, but the unit's credential %s is empty: does the file named by LoadCredential= exist?", a.ACL, a.Auth.Path)
}
