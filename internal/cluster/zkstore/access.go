package zkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/secretfile"
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

	identity identity // read from Access
}

// Access is how to get at a tree. It names files and holds no secret, so that it can be kept, and what it names is read
// when it is needed: a file that was replaced counts from the next session or connection on.
type Access struct {
	Auth AuthFile `json:"auth,omitzero"`
	ACL  ACL      `json:"acl,omitempty"`
	TLS  TLS      `json:"tls,omitzero"`
}

// AuthFile holds one line, user:password, for ZooKeeper's digest scheme.
type AuthFile struct {
	Path string `json:"path,omitempty"`
	// Systemd says that it is a credential of the unit. Systemd lets nobody else into their directory, and gives them
	// modes of its own.
	Systemd bool `json:"systemd,omitempty"`
}

// ACL is what others may do with the znodes that a session creates.
type ACL string

// The kinds of [ACL]; the zero value is open.
const (
	ACLOpen     ACL = "open"
	ACLReadable ACL = "readable"
	ACLPrivate  ACL = "private"
)

func (a ACL) list() []zk.ACL {
	switch a {
	case ACLPrivate:
		return zk.AuthACL(zk.PermAll)
	case ACLReadable:
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	}
	return zk.WorldACL(zk.PermAll)
}

// Check reads the files that are named and says what is wrong with them.
func (a Access) Check() error {
	_, err := a.who()
	if a.TLS.Enabled {
		_, tlsErr := a.TLS.config()
		err = errors.Join(err, tlsErr)
	}
	return err
}

// identity is who a session is to the server. It must not be logged.
type identity struct {
	scheme string
	secret []byte
	user   string
	file   string
}

// who is as whom a session comes. Where a znode's creator has to be somebody, it may not be nobody.
func (a Access) who() (identity, error) {
	i, err := a.Auth.read()
	if err == nil && a.Auth.Path != "" && i.scheme == "" && a.ACL != "" && a.ACL != ACLOpen {
		err = fmt.Errorf("zookeeper.acl: %q needs credentials, but the unit's credential %s is empty: is the file there that LoadCredential= names?", a.ACL, a.Auth.Path)
	}
	return i, err
}

// read returns nobody for a credential of the unit that is empty: so the units stand in for a file that is not there.
func (f AuthFile) read() (identity, error) {
	if f.Path == "" {
		return identity{}, nil
	}
	const key, line = "zookeeper.auth.file", 4 << 10
	data, err := secretfile.Read(key, f.Path, secretfile.Private(f.Systemd))
	if err != nil {
		return identity{}, err
	}
	if f.Systemd && len(bytes.TrimSpace(data)) == 0 {
		return identity{file: f.Path}, nil
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	user, password, ok := strings.Cut(text, ":")
	if !ok || user == "" || password == "" || len(data) > line || strings.ContainsAny(text, "\r\n\x00") {
		return identity{}, fmt.Errorf("%s: %s does not hold one line, user:password", key, f.Path)
	}
	return identity{scheme: "digest", secret: []byte(text), user: user, file: f.Path}, nil
}

// advice says what to do about a znode that this identity may not touch. The server takes every password; a wrong one only
// makes somebody else, who has no rights.
func (i identity) advice() string {
	switch {
	case i.scheme == "" && i.file != "":
		return fmt.Sprintf("this session has no credentials: %s is empty, is the file there that LoadCredential= names?", i.file)
	case i.scheme == "":
		return "this session has no credentials: set zookeeper.auth.file"
	}
	return fmt.Sprintf("user %q of zookeeper.auth.file %s has no right to it: is the password the one that the tree was made with?", i.user, i.file)
}

// denied completes a refusal with what to do about it.
func (s *Session) denied(err error) error {
	if errors.Is(err, cluster.ErrNoAuth) {
		return fmt.Errorf("%w (%s)", err, s.opt.identity.advice())
	}
	return err
}

func (s *Session) authenticate(ctx context.Context) error {
	i := s.opt.identity
	if i.scheme == "" {
		return nil
	}
	_, err := await(ctx, s, func() (struct{}, error) { return struct{}{}, s.zk.AddAuth(i.scheme, i.secret) })
	if errors.Is(err, cluster.ErrNoAuth) {
		return fmt.Errorf("ZooKeeper refused the %s credentials: check their scheme and secret", i.scheme)
	}
	if err != nil {
		return fmt.Errorf("ZooKeeper did not take the %s credentials: %w", i.scheme, err)
	}
	return nil
}
