package zk

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
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
	Log   *slog.Logger

	dialer *dialer // nil for that of Access
}

// Access holds the credentials and TLS settings of a connection, and the ACL of the znodes that are created over it. It
// contains file names and no secrets, so it can be stored. The files are read when they are needed: a replaced
// certificate takes effect with the next connection, replaced credentials with the next session or call of
// [Session.PresentCredentials].
type Access struct {
	Auth AuthFile `json:"auth,omitzero"`
	SASL SASL     `json:"sasl,omitzero"`
	ACL  ACL      `json:"acl,omitempty"`
	TLS  TLS      `json:"tls,omitzero"`
	// Identities are those that ACLs name in place of the ones that this host has by SASL or by its certificate, which
	// must be among them: those of all members, each as scheme:name. They are empty if all members have the same.
	Identities []string `json:"identities,omitempty"`
}

// ACL determines what other ZooKeeper clients may do with the znodes that a session creates.
type ACL string

// The values of [ACL]. The zero value means open.
const (
	ACLOpen     ACL = "open"
	ACLReadable ACL = "readable"
	ACLPrivate  ACL = "private"
	// ACLAuto is private if the session has an identity, except below a root that is open: see [Session.FollowRoot].
	ACLAuto ACL = "auto"
)

// Open reports whether every client has all permissions.
func (a ACL) Open() bool { return a == "" || a == ACLOpen }

// mayBeOpen reports whether a session without an identity is acceptable.
func (a ACL) mayBeOpen() bool { return a.Open() || a == ACLAuto }

// entries returns the ACL for identities. It names each of them instead of using ZooKeeper's scheme auth, which stands
// for every identity that the connection ever presented: one that was removed from the file, or a TLS certificate
// beside it, would keep its permissions.
func (a ACL) entries(named []identity) []zk.ACL {
	if a.Open() || a == ACLAuto && len(named) == 0 {
		return zk.WorldACL(zk.PermAll)
	}
	var list []zk.ACL
	for _, i := range named {
		list = append(list, zk.ACL{Perms: zk.PermAll, Scheme: i.scheme, ID: i.aclID()})
	}
	if a == ACLReadable {
		list = append(list, zk.WorldACL(zk.PermRead)...)
	}
	return list
}

// named returns the identities that ACLs name if a session has ids: those of the scheme digest, and the listed ones in
// place of the rest.
func (a Access) named(ids identities) []identity {
	if len(a.Identities) == 0 {
		return ids.all
	}
	named := slices.DeleteFunc(slices.Clone(ids.all), func(i identity) bool { return i.scheme != digestScheme })
	for _, text := range a.Identities {
		scheme, name, _ := strings.Cut(text, ":")
		named = append(named, identity{scheme: scheme, name: name})
	}
	return named
}

// namesCertificates reports whether ACLs name certificates: whether one is listed, or there is nothing else to name.
func (a Access) namesCertificates() bool {
	if a.ACL.Open() {
		return false
	}
	listed := func(text string) bool { return strings.HasPrefix(text, x509Scheme+":") }
	return slices.ContainsFunc(a.Identities, listed) || a.Auth.Path == "" && !a.SASL.Enabled() && a.TLS.Cert != ""
}

// used returns those of the identities of a connection that count for ACLs.
func (a Access) used(own []identity) []identity {
	unused := func(i identity) bool { return i.scheme == x509Scheme && !a.namesCertificates() }
	return slices.DeleteFunc(slices.Clone(own), unused)
}

// checkListed returns an error if a list of identities lacks one of those that this host has.
func (a Access) checkListed(used []identity) error {
	if len(a.Identities) == 0 {
		return nil
	}
	for _, i := range used {
		if text := i.String(); !slices.Contains(a.Identities, text) {
			return fmt.Errorf("%w: to the servers this host is %q, which zookeeper.identities does not name: add it "+
				"there, on all members",
				cluster.ErrNoAuth, text)
		}
	}
	return nil
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

// identities reads the identities that a session presents. An ACL that is not open needs at least one, or that of a
// connection.
func (a Access) identities() (identities, error) {
	ids, err := a.Auth.read(authKey)
	switch {
	case err != nil || len(ids.all) > 0 || a.ACL.mayBeOpen() || a.SASL.Enabled() || a.namesCertificates():
		return ids, err
	case a.Auth.Path == "":
		return ids, fmt.Errorf("zookeeper.acl: %q needs %s, zookeeper.sasl or zookeeper.tls.cert", a.ACL, authKey)
	}
	return ids, fmt.Errorf("zookeeper.acl: %q needs credentials, but the unit's credential %s is empty: does the "+
		"file named by LoadCredential= exist?", a.ACL, a.Auth.Path)
}
