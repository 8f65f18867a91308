package zkstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/secretfile"
)

// AuthFile holds lines of user:password for ZooKeeper's digest scheme. A session presents all of them, and what it creates
// is for all of them; their order has no meaning.
type AuthFile struct {
	Path string `json:"path,omitempty"`
	// Systemd reports that it is a credential of the unit: systemd alone decides on its mode, and lets nobody else into its
	// directory.
	Systemd bool `json:"systemd,omitempty"`
}

// Limits of an [AuthFile]. A rotation needs two identities; each is part of every ACL.
const (
	maxIdentities = 8
	maxAuthFile   = 4 << 10
)

// identity is one user to the server. Its secret must not be logged.
type identity struct {
	scheme string
	secret []byte
	user   string
}

// id returns the identity as ACLs name it.
func (i identity) id() string {
	_, password, _ := strings.Cut(string(i.secret), ":")
	return zk.DigestACL(zk.PermAll, i.user, password)[0].ID
}

// Tag names an identity of an ACL to people, and in the members' records, where others may read: the user and 16 bits of a
// hash. They tell passwords apart and are too few to find one.
func Tag(id string) string {
	user, _, _ := strings.Cut(id, ":")
	sum := sha256.Sum256([]byte(id))
	return user + "/" + hex.EncodeToString(sum[:2])
}

// identities are all that a session presents, and the file that they are from.
type identities struct {
	all  []identity
	file string
}

// tags returns the [Tag] of each identity.
func (who identities) tags() []string {
	tags := make([]string, len(who.all))
	for i, one := range who.all {
		tags[i] = Tag(one.id())
	}
	return tags
}

// same reports whether both hold the same identities, in whatever order.
func (who identities) same(other identities) bool {
	if len(who.all) != len(other.all) {
		return false
	}
	for _, i := range who.all {
		if !other.has(i) {
			return false
		}
	}
	return true
}

func (who identities) has(i identity) bool {
	return slices.ContainsFunc(who.all, func(o identity) bool { return o.scheme == i.scheme && bytes.Equal(o.secret, i.secret) })
}

// read returns no identity for a credential of the unit that is empty: the units use that where the file does not exist.
// An error names the line and quotes nothing of it: it may be the password.
func (f AuthFile) read() (identities, error) {
	who := identities{file: f.Path}
	if f.Path == "" {
		return who, nil
	}
	const key = "zookeeper.auth.file"
	data, err := secretfile.Read(key, f.Path, secretfile.Private(f.Systemd))
	if err != nil {
		return identities{}, err
	}
	if f.Systemd && len(bytes.TrimSpace(data)) == 0 {
		return who, nil
	}
	bad := func(format string, args ...any) (identities, error) {
		return identities{}, fmt.Errorf("%s: %s %s", key, f.Path, fmt.Sprintf(format, args...))
	}
	if len(data) > maxAuthFile {
		return bad("is longer than %d bytes", maxAuthFile)
	}
	for number, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		i, why := parseIdentity(line)
		switch {
		case why != "":
			return bad("line %d %s", number+1, why)
		case who.has(i):
			return bad("line %d repeats an earlier one", number+1)
		case len(who.all) == maxIdentities:
			return bad("holds more than %d lines user:password", maxIdentities)
		}
		who.all = append(who.all, i)
	}
	if len(who.all) == 0 {
		return bad("holds no line user:password")
	}
	return who, nil
}

// parseIdentity reads user:password, or returns what is wrong with it.
func parseIdentity(line string) (i identity, why string) {
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || password == "" {
		return i, "is not user:password"
	}
	// A server reads the bytes in its own locale, so others would be another user at each server.
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return i, "holds characters that are not printable ASCII"
	}
	return identity{scheme: "digest", secret: []byte(line), user: user}, ""
}

// advice returns what to do about a znode that these identities may not use. The server takes every password: a wrong one
// makes another user, who has no rights.
func (who identities) advice() string {
	switch {
	case len(who.all) == 0 && who.file != "":
		return fmt.Sprintf("this session has no credentials: %s is empty, is the file there that LoadCredential= names?", who.file)
	case len(who.all) == 0:
		return "this session has no credentials: set zookeeper.auth.file"
	}
	var users []string
	for _, i := range who.all {
		if name := fmt.Sprintf("%q", i.user); !slices.Contains(users, name) {
			users = append(users, name)
		}
	}
	return fmt.Sprintf("user %s of zookeeper.auth.file %s has no right to it: is the password the one that the tree was made with? "+
		"All members share it: copy the file from one that works", strings.Join(users, ", "), who.file)
}
