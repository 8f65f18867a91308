package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zkelectd/internal/secretfile"
)

// Tokens are who may submit requests with which secret. The secrets themselves are not kept.
type Tokens struct{ all []token }

type token struct {
	name string
	hash [sha256.Size]byte
}

// minToken is how long a token must be at least: nobody guesses 16 random characters.
const minToken = 16

var (
	tokenName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	tokenSyntax = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // of RFC 6750, what can be sent
)

// ReadTokens reads lines name:token; empty ones, and those beginning with #, are passed over. systemd tells that the file is a
// credential of the unit. An error names the line, and says nothing of what stands there: it may be the secret.
func ReadTokens(path string, systemd bool) (Tokens, error) {
	const key = "http.token_file"
	if path == "" {
		return Tokens{}, nil
	}
	data, err := secretfile.Read(key, path, secretfile.Private(systemd))
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
		if why := t.add(line); why != "" {
			return Tokens{}, fmt.Errorf("%s: %s:%d: %s", key, path, number, why)
		}
	}
	if len(t.all) == 0 {
		return Tokens{}, fmt.Errorf("%s: %s holds no line name:token", key, path)
	}
	return t, nil
}

// Equal reports whether both hold the same names and tokens, in the same order.
func (t Tokens) Equal(other Tokens) bool { return slices.Equal(t.all, other.all) }

// add takes a line, or says what is wrong with it.
func (t *Tokens) add(line string) string {
	name, secret, ok := strings.Cut(line, ":")
	switch {
	case !ok:
		return "is not name:token"
	case !tokenName.MatchString(name):
		return "the name before the colon may have letters, digits and ._@- only, 64 at most"
	case len(secret) < minToken:
		return fmt.Sprintf("the token has fewer than %d characters; 'openssl rand -hex 16' makes one", minToken)
	case !tokenSyntax.MatchString(secret):
		return "the token may have letters, digits and ._~+/- only, and = at the end"
	}
	hash := sha256.Sum256([]byte(secret))
	for _, other := range t.all {
		if other.name == name {
			return "this name is given twice"
		}
		if other.hash == hash {
			return "this token is another's already"
		}
	}
	t.all = append(t.all, token{name, hash})
	return ""
}

// owner is whose token it is, "" if nobody's. It takes as long whoever's it is.
func (t Tokens) owner(secret string) string {
	hash := sha256.Sum256([]byte(secret))
	name := ""
	for _, known := range t.all {
		if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
			name = known.name
		}
	}
	return name
}
