package zk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/sys/secretfile"
)

// AuthFile names a file with user:password lines for ZooKeeper's digest scheme. A session presents all of them, and
// grants all of them access to the znodes that it creates. Their order has no meaning.
type AuthFile struct {
	Path string `json:"path,omitempty"`
	// Systemd reports whether the file is a credential of the systemd unit. systemd sets the mode of such a file and
	// keeps other users out of its directory.
	Systemd bool `json:"systemd,omitempty"`
}

// Limits of an [AuthFile]. Rotating credentials needs two identities. Every ACL contains all of them.
const (
	maxIdentities = 8
	maxAuthFile   = 4 << 10
)

// identity is somebody whom ACLs can name. Its password, which only one of the scheme digest has, must not be logged.
type identity struct{ scheme, name, password string }

// The schemes of identities: digest for those that a session presents, sasl and x509 for those that its connections
// have authenticated, the latter by a TLS certificate.
const (
	digestScheme = "digest"
	saslScheme   = "sasl"
	x509Scheme   = "x509"
)

// secret returns what is presented to the server.
func (i identity) secret() []byte { return []byte(i.name + ":" + i.password) }

// aclID returns the identity as it appears in ACLs.
func (i identity) aclID() string {
	if i.scheme != digestScheme {
		return i.name
	}
	return zk.DigestACL(zk.PermAll, i.name, i.password)[0].ID
}

// String returns the identity's [Tag], or its scheme and name.
func (i identity) String() string {
	if i.scheme != digestScheme {
		return i.scheme + ":" + i.name
	}
	return Tag(i.aclID())
}

// Tag returns a short name for an identity in an ACL, for people and for the members' records, which others may read:
// the user and 16 bits of a hash. The bits distinguish passwords but are too few to recover one.
func Tag(id string) string {
	user, _, _ := strings.Cut(id, ":")
	sum := sha256.Sum256([]byte(id))
	return user + "/" + hex.EncodeToString(sum[:2])
}

// identities are all identities that a session has, and the file that those of the scheme digest were read from.
type identities struct {
	all  []identity
	file string
}

// tags returns the text of each identity.
func (ids identities) tags() []string { return tagsOf(ids.all) }

func tagsOf(all []identity) []string {
	tags := make([]string, len(all))
	for n, i := range all {
		tags[n] = i.String()
	}
	return tags
}

// equal reports whether both contain the same identities, regardless of order.
func (ids identities) equal(other identities) bool {
	if len(ids.all) != len(other.all) {
		return false
	}
	for _, i := range ids.all {
		if !other.contains(i) {
			return false
		}
	}
	return true
}

func (ids identities) contains(i identity) bool {
	return slices.Contains(ids.all, i)
}

// read reads the identities in the file. An empty credential of the systemd unit has none: the units pass one if the
// file does not exist. An error names the setting key and the line but does not quote it, since it may be a password.
func (f AuthFile) read(key string) (identities, error) {
	ids := identities{file: f.Path}
	if f.Path == "" {
		return ids, nil
	}
	data, err := secretfile.Read(key, f.Path, secretfile.ForbiddenMode(f.Systemd))
	if err != nil {
		return identities{}, err
	}
	if f.Systemd && len(bytes.TrimSpace(data)) == 0 {
		return ids, nil
	}
	bad := func(format string, args ...any) (identities, error) {
		return identities{}, fmt.Errorf("%s: %s %w", key, f.Path, fmt.Errorf(format, args...))
	}
	if len(data) > maxAuthFile {
		return bad("is longer than %d bytes", maxAuthFile)
	}
	for number, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		i, err := parseIdentity(line)
		switch {
		case err != nil:
			return bad("line %d %w", number+1, err)
		case ids.contains(i):
			return bad("line %d duplicates an earlier one", number+1)
		case len(ids.all) == maxIdentities:
			return bad("has more than %d user:password lines", maxIdentities)
		}
		ids.all = append(ids.all, i)
	}
	if len(ids.all) == 0 {
		return bad("has no user:password line")
	}
	return ids, nil
}

// parseIdentity parses a user:password line. The error does not quote the line.
func parseIdentity(line string) (identity, error) {
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || password == "" {
		return identity{}, errors.New("is not user:password")
	}
	// Each server decodes the bytes in its own locale, so other characters could mean a different user on each server.
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return identity{}, errors.New("has characters that are not printable ASCII")
	}
	return identity{digestScheme, user, password}, nil
}

// deniedAdvice returns what to do if these identities lack permission. The server accepts every password: a wrong one
// makes a different user, without permissions.
func (ids identities) deniedAdvice() string {
	switch {
	case len(ids.all) == 0 && ids.file != "":
		return fmt.Sprintf("this session has no credentials: %s is empty; does the file named by "+
			"LoadCredential= exist?", ids.file)
	case len(ids.all) == 0:
		return "this session has no credentials: set zookeeper.auth.file, zookeeper.sasl or zookeeper.tls.cert"
	}
	var users []string
	for _, i := range ids.all {
		if i.scheme != digestScheme {
			return fmt.Sprintf("this session is %s, and has no permission: all members must be the same to the "+
				"servers, or have the "+
				"same zookeeper.auth.file, or be listed in zookeeper.identities; after a change there run "+
				"'zkelectd acl --apply' on a "+
				"member that has access", strings.Join(ids.tags(), ", "))
		}
		if name := fmt.Sprintf("%q", i.name); !slices.Contains(users, name) {
			users = append(users, name)
		}
	}
	return fmt.Sprintf("user %s from zookeeper.auth.file %s has no permission: is the password the one that the tree "+
		"was created with? "+
		"All members need the same file: copy it from a working one", strings.Join(users, ", "), ids.file)
}
