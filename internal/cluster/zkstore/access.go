package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
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
	_, err := a.Auth.read()
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

// maxAuth bounds what is read of a file that may be anything.
const maxAuth = 4 << 10

func (f AuthFile) read() (identity, error) {
	if f.Path == "" {
		return identity{}, nil
	}
	bad := func(format string, args ...any) (identity, error) {
		return identity{}, fmt.Errorf("zookeeper.auth.file: %s "+format, append([]any{f.Path}, args...)...)
	}
	if !f.Systemd && !strings.Contains(f.Path, "/") {
		return identity{}, noCredential("zookeeper.auth.file", f.Path)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return bad("cannot be read: %v", errors.Unwrap(err))
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return bad("cannot be read: %v", err)
	case !info.Mode().IsRegular():
		return bad("is no regular file")
	case !f.Systemd && info.Mode().Perm()&^0o600 != 0:
		return bad("has mode %#o, so that others may get at the password: chmod 0600 it", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxAuth+1))
	if err != nil {
		return bad("cannot be read: %v", err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || password == "" || len(data) > maxAuth || strings.ContainsAny(line, "\r\n\x00") {
		return bad("does not hold one line, user:password")
	}
	return identity{scheme: "digest", secret: []byte(line), user: user, file: f.Path}, nil
}

// noCredential refuses a name that would be a file in whatever directory this process happens to be in.
func noCredential(key, name string) error {
	return fmt.Errorf("%s: %s has no slash, so it names a credential of a systemd unit, but $CREDENTIALS_DIRECTORY is not set: "+
		"add LoadCredential= to the unit, or write a path", key, name)
}

// advice says what to do about a znode that this identity may not touch. The server takes every password; a wrong one only
// makes somebody else, who has no rights.
func (i identity) advice() string {
	if i.scheme == "" {
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
