package web

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/sys/secretfile"
)

// Authenticator determines who sent an HTTP request, and whether that principal may submit operator requests.
type Authenticator struct {
	log    *slog.Logger
	web    Config
	tokens atomic.Pointer[Tokens]
	logged *rate.Limiter // wrong tokens that are logged
}

// So many wrong tokens are logged in a burst, and then one in each interval: clients must not be able to fill the log.
// There is no limit to what they may try, as nobody can guess a token.
const (
	maxLogged   = 10
	logInterval = 5 * time.Second
)

// NewAuthenticator returns an authenticator for the certificates and users of a web configuration. It has no tokens
// yet.
func NewAuthenticator(web Config, log *slog.Logger) *Authenticator {
	a := &Authenticator{log: log, web: web, logged: rate.NewLimiter(rate.Every(logInterval), maxLogged)}
	a.SetTokens(Tokens{})
	return a
}

// SetTokens replaces the accepted tokens.
func (a *Authenticator) SetTokens(t Tokens) { a.tokens.Store(&t) }

// The authentication methods, as /v1/whoami returns them.
const (
	methodToken       = "token"
	methodCertificate = "certificate"
	methodSocket      = "socket"
)

// principal is an authenticated or anonymous client. refusalCode and refusalReason are the response to its operator
// requests; 0 if it may submit them.
type principal struct {
	name, method  string
	groups        []string // to which its requests are limited; nil for all
	refusalCode   int
	refusalReason string
}

// limitTo returns the principal of a request about a group: one that may not submit requests about that group is
// refused. Who may submit them about a group may do so about its slots.
func (p principal) limitTo(group string) principal {
	group, _, _ = strings.Cut(group, "/")
	if p.refusalCode == 0 && p.groups != nil && !slices.Contains(p.groups, group) {
		p.refusalCode, p.refusalReason = http.StatusForbidden, "this token only permits requests about the groups "+
			strings.Join(p.groups, ", ")
	}
	return p
}

// authenticate returns the principal of a request. A bearer token takes precedence; then come a client certificate, and
// the peer of a unix socket.
func (a *Authenticator) authenticate(r *http.Request) principal {
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return a.checkToken(r, strings.TrimSpace(secret))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name, err := a.web.verifyClient(r.TLS)
		if err != nil {
			return principal{refusalCode: http.StatusUnauthorized, refusalReason: "the certificate is not accepted: " +
				err.Error()}
		}
		return principal{name: sanitizeName(name), method: methodCertificate}
	}
	if c := connOf(r); c != nil && c.peer != nil {
		return principal{name: sanitizeName(procinfo.AtHost(procinfo.UserName(int(c.peer.Uid)))), method: methodSocket}
	}
	return principal{refusalCode: http.StatusUnauthorized, refusalReason: a.missingCredentials(r)}
}

// missingCredentials returns which credentials would be accepted.
func (a *Authenticator) missingCredentials(r *http.Request) string {
	switch {
	case len(a.tokens.Load().all) > 0:
		return "operator requests need a token from http.token_file (Authorization: Bearer), or a client certificate"
	case r.TLS != nil:
		return "operator requests need a client certificate, or http.token_file"
	}
	return "this daemon accepts no operator requests here: set http.token_file, or client certificates in http.web_config"
}

// checkToken returns the principal that a token belongs to.
func (a *Authenticator) checkToken(r *http.Request, secret string) principal {
	if t, ok := a.tokens.Load().find(secret); ok {
		by := principal{name: t.name, method: methodToken}
		if t.groups != "" {
			by.groups = strings.Split(t.groups, ",")
		}
		return by
	}
	if a.logged.Allow() {
		a.log.Warn("wrong token in an HTTP request", "from", r.RemoteAddr, "path", r.URL.Path)
	}
	return principal{refusalCode: http.StatusUnauthorized, refusalReason: "this token is not in http.token_file"}
}

// sanitizeName makes a name that others have chosen safe to display: printable, valid UTF-8 and at most maxNameLen
// characters.
func sanitizeName(name string) string {
	name = status.Printable(strings.ToValidUTF8(name, "?"))
	if r := []rune(name); len(r) > maxNameLen {
		return string(r[:maxNameLen])
	}
	return name
}

const maxNameLen = 64

// peerCredentials returns the credentials of the process at the other end of a unix socket.
func peerCredentials(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, inner)
}

// Tokens are the tokens that authorize operator requests, with the name of each owner. Only hashes of the secrets are
// stored.
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

// ReadTokens reads name:token lines, which may end with a list of groups. Empty lines, and those that begin with #, are
// ignored. systemd reports whether the file is a credential of the systemd unit. An error names the line but does not
// quote it, since it may be the secret. If path is empty, there are no tokens.
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

// Config is a web configuration file of Prometheus' exporter-toolkit, which reads it again for each connection and
// request. The zero value means no file: plain HTTP.
type Config struct{ path string }

const webConfigKey = "http.web_config"

// ReadConfig checks the file at path and the files that it names. An empty path returns the zero value.
func ReadConfig(path string) (Config, error) {
	w := Config{path}
	if path == "" {
		return w, nil
	}
	c, err := w.read()
	if err != nil {
		return w, err
	}
	if err := secretfile.CheckWritersOf(webConfigKey, path); err != nil { // it determines who may submit operator requests
		return w, err
	}
	if err := toolkit.Validate(path); err != nil {
		return w, fmt.Errorf("%s: %s: %w", webConfigKey, path, err)
	}
	if len(c.Users) > 0 {
		return w, fmt.Errorf("%s: %s: basic_auth_users: passwords are not supported; to restrict reading, demand "+
			"certificates (client_auth_type: "+
			"RequireAndVerifyClientCert), or listen at a unix socket", webConfigKey, path)
	}
	if verifies := strings.Contains(c.TLSConfig.ClientAuth, "Verify"); verifies || c.TLSConfig.ClientCAs != "" {
		if _, err := clientCAs(c); err != nil {
			return w, fmt.Errorf("%s: %s: %w", webConfigKey, path, err)
		}
	}
	return w, nil
}

// read decodes the file. It does not validate it; the toolkit does.
func (w Config) read() (toolkit.Config, error) {
	var c toolkit.Config
	data, err := secretfile.Read(webConfigKey, w.path, 0)
	if err != nil {
		return c, err
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %s: %w", webConfigKey, w.path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(w.path))
	return c, nil
}

// TLSEnabled reports whether the configuration enables TLS.
func (w Config) TLSEnabled() bool {
	if w.path == "" {
		return false
	}
	c, err := w.read()
	return err == nil && c.TLSConfig.IsEnabled()
}

// pinnedTLSConfig returns a client configuration that trusts only the certificate in the web configuration. It is for
// clients on the same host, which can read that file.
func (w Config) pinnedTLSConfig() (*tls.Config, error) {
	c, err := w.read()
	if err != nil {
		return nil, err
	}
	text := []byte(c.TLSConfig.TLSCert)
	if c.TLSConfig.TLSCertPath != "" {
		if text, err = secretfile.Read(webConfigKey+": cert_file", c.TLSConfig.TLSCertPath, 0); err != nil {
			return nil, err
		}
	}
	own, _ := pem.Decode(text)
	if own == nil {
		return nil, fmt.Errorf("%s: %s: the certificate is not in PEM format", webConfigKey, w.path)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// VerifyConnection compares the certificate itself. This host may not know its CA, and it may lack the name
		// localhost.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, own.Bytes) {
				return fmt.Errorf("the server's certificate is not the one in %s", w.path)
			}
			return nil
		},
	}, nil
}

// verifyClient verifies a client's certificate and returns its common name. It does so again for each operator request,
// with the current CAs: since the connection was made, the certificate may have expired or its CA may have been
// removed. Without client_ca_file the toolkit would accept certificates of any public CA.
func (w Config) verifyClient(state *tls.ConnectionState) (string, error) {
	c, err := w.read()
	if err != nil {
		return "", err
	}
	roots, err := clientCAs(c)
	if err != nil {
		return "", err
	}
	leaf, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return "", err
	}
	if c.TLSConfig.ClientAllowedSans != nil {
		if err := c.TLSConfig.VerifyPeerCertificate([][]byte{leaf.Raw}, nil); err != nil {
			return "", err
		}
	}
	if leaf.Subject.CommonName == "" {
		return "", errors.New("the certificate has no common name, so the request could not be attributed to anyone")
	}
	return leaf.Subject.CommonName, nil
}

// clientCAs returns the CAs that sign the certificates of clients.
func clientCAs(c toolkit.Config) (*x509.CertPool, error) {
	text := []byte(c.TLSConfig.ClientCAsText)
	if c.TLSConfig.ClientCAs != "" {
		var err error
		if text, err = secretfile.Read("client_ca_file", c.TLSConfig.ClientCAs, 0); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("client_auth_type %s needs client_ca_file: without it, certificates of any public CA "+
			"would be accepted", c.TLSConfig.ClientAuth)
	case !pool.AppendCertsFromPEM(text):
		return nil, errors.New("client_ca_file contains no PEM certificate")
	}
	return pool, nil
}
