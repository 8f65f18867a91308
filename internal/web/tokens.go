package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zkelectd/internal/sys/secretfile"
)

// Tokens are the tokens that authorize operator requests, with the name of each owner. Only hashes of the secrets are stored.
type Tokens struct{ all []token }

type token struct {
	name string
	hash [sha256.Size]byte
	// groups are the groups that it permits requests for, separated by commas; empty for all.
	groups string
}

// minTokenLen is the minimum length of a token in characters: 16 random characters cannot be guessed.
const minTokenLen = 16

var (
	tokenName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	tokenSyntax = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // b64token of RFC 6750
	groupSyntax = regexp.MustCompile(`^[^\s,]+(,[^\s,]+)*$`)
)

// ReadTokens reads name:token lines, which may end with a list of groups. Empty lines, and those that begin with #, are ignored. systemd reports whether the file is a
// credential of the systemd unit. An error names the line but does not quote it, since it may be the secret. If path is
// empty, there are no tokens.
func ReadTokens(path string, systemd bool) (Tokens, error) {
	const key = "http.token_file"
	if path == "" {
		return Tokens{}, nil
	}
	data, err := secretfile.Read(key, path, secretfile.ForbiddenMode(systemd))
	if err == nil && !systemd {
		err = secretfile.CheckWritersOf(key, path)
	}
	if err != nil {
		return Tokens{}, err
	}
	var t Tokens
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := t.add(line); err != nil {
			return Tokens{}, fmt.Errorf("%s: %s:%d: %w", key, path, number, err)
		}
	}
	if len(t.all) == 0 {
		return Tokens{}, fmt.Errorf("%s: %s has no name:token line", key, path)
	}
	return t, nil
}

// Equal reports whether both have the same names and tokens in the same order.
func (t Tokens) Equal(other Tokens) bool { return slices.Equal(t.all, other.all) }

// add adds the token in a line. The error does not quote the line.
func (t *Tokens) add(line string) error {
	name, secret, ok := strings.Cut(line, ":")
	secret, groups, limited := strings.Cut(secret, " ")
	groups = strings.TrimSpace(groups)
	switch {
	case !ok:
		return errors.New("is not name:token")
	case !tokenName.MatchString(name):
		return errors.New("the name before the colon may have only letters, digits and ._@-, at most 64 characters")
	case len(secret) < minTokenLen:
		return fmt.Errorf("the token has fewer than %d characters; create one with 'openssl rand -hex 16'", minTokenLen)
	case !tokenSyntax.MatchString(secret):
		return errors.New("the token may have only letters, digits and ._~+/-, and = at the end")
	case limited && !groupSyntax.MatchString(groups):
		return errors.New("after the token and a space there must be the names of groups, separated by commas only")
	}
	hash := sha256.Sum256([]byte(secret))
	for _, other := range t.all {
		if other.name == name {
			return errors.New("this name appears twice")
		}
		if other.hash == hash {
			return errors.New("this token already belongs to another name")
		}
	}
	t.all = append(t.all, token{name, hash, groups})
	return nil
}

// find returns the token with a secret. It runs in constant time.
func (t Tokens) find(secret string) (found token, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for _, known := range t.all {
		if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
			found, ok = known, true
		}
	}
	return found, ok
}
