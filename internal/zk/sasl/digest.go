package sasl

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// digestURI names ZooKeeper's service, on each server the same.
const digestURI = "zookeeper/zk-sasl-md5"

// ErrNoSASL is the error for a server that answers, but with nothing: none of its mechanisms is set up.
var ErrNoSASL = errors.New("the server is not set up for SASL: its JAAS configuration needs a section Server")

// digest is an exchange of DIGEST-MD5.
type digest struct {
	user, password, cnonce string
	proof                  string // what the server must answer; empty until the challenge
	done                   bool
}

// NewDigest returns an exchange that proves with DIGEST-MD5 that it knows the password of a user.
func NewDigest(user, password string) Exchange {
	return &digest{user: user, password: password, cnonce: rand.Text()}
}

func (d *digest) Done() bool { return d.done }

func (d *digest) Step(challenge []byte) ([]byte, error) {
	switch {
	case challenge == nil:
		return []byte{}, nil
	case len(challenge) == 0:
		return nil, ErrNoSASL
	}
	directives, err := parseDirectives(string(challenge))
	if err != nil {
		return nil, err
	}
	if d.proof != "" {
		if !hmac.Equal([]byte(directives["rspauth"]), []byte(d.proof)) {
			return nil, errors.New("the server does not know the password: it has proven another one")
		}
		d.done = true
		return nil, nil
	}
	return d.answer(directives)
}

// answer returns the answer to a challenge.
func (d *digest) answer(challenge map[string]string) ([]byte, error) {
	realm, nonce := challenge["realm"], challenge["nonce"]
	offers := strings.Split(challenge["qop"], ",")
	switch {
	case nonce == "" || challenge["algorithm"] != "md5-sess":
		return nil, errors.New("the server's challenge is not one of DIGEST-MD5")
	case challenge["qop"] != "" && !slices.Contains(offers, "auth"):
		return nil, fmt.Errorf("the server demands the quality of protection %q, which ZooKeeper's protocol does not "+
			"have", challenge["qop"])
	}
	secret := md5.Sum([]byte(d.user + ":" + realm + ":" + d.password))
	key := hexMD5(string(secret[:]) + ":" + nonce + ":" + d.cnonce)
	const count = "00000001" // of the answers to this nonce
	response := func(method string) string {
		return hexMD5(strings.Join([]string{key, nonce, count, d.cnonce, "auth", hexMD5(method + ":" + digestURI)},
			":"))
	}
	d.proof = response("")
	return fmt.Appendf(nil,
		`charset=utf-8,username=%s,realm=%s,nonce=%s,nc=%s,cnonce=%s,digest-uri="%s",maxbuf=65536,response=%s,qop=auth`,
		quote(d.user), quote(realm), quote(nonce), count, quote(d.cnonce), digestURI, response("AUTHENTICATE")), nil
}

func hexMD5(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// quote returns a quoted-string.
func quote(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

// parseDirectives parses name=value pairs, whose values may be quoted.
func parseDirectives(text string) (map[string]string, error) {
	malformed := errors.New("the server's challenge is malformed")
	all := make(map[string]string)
	for rest := text; strings.Trim(rest, ", \t\x00") != ""; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, malformed
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			if value, rest, ok = unquote(after[1:]); !ok {
				return nil, malformed
			}
		} else {
			value, rest, _ = strings.Cut(after, ",")
			rest = "," + rest
		}
		all[strings.ToLower(strings.Trim(name, ", \t"))] = strings.TrimSpace(value)
	}
	return all, nil
}

// unquote returns the value of a quoted-string, after its first quote, and what follows it.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
