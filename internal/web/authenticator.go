package web

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
)

// Authenticator determines who sent an HTTP request, and whether that principal may submit operator requests.
type Authenticator struct {
	log     *slog.Logger
	web     Config
	tokens  atomic.Pointer[Tokens]
	limiter *authLimiter
}

// NewAuthenticator returns an authenticator for the certificates and users of a web configuration. It has no tokens yet.
func NewAuthenticator(web Config, log *slog.Logger) *Authenticator {
	a := &Authenticator{log: log, web: web, limiter: newAuthLimiter()}
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

// principal is an authenticated or anonymous client. refusalCode and refusalReason are the response to its operator requests; 0
// if it may submit them.
type principal struct {
	name, method  string
	groups        []string // to which its requests are limited; nil for all
	refusalCode   int
	refusalReason string
}

// limitTo returns the principal of a request about a group: one that may not submit requests about that group is refused. Who may
// submit them about a group may do so about its slots.
func (p principal) limitTo(group string) principal {
	group, _, _ = strings.Cut(group, "/")
	if p.refusalCode == 0 && p.groups != nil && !slices.Contains(p.groups, group) {
		p.refusalCode, p.refusalReason = http.StatusForbidden, "this token only permits requests about the groups "+strings.Join(p.groups, ", ")
	}
	return p
}

// authenticate returns the principal of a request. A bearer token takes precedence; then come a client certificate, and the peer of
// a unix socket.
func (a *Authenticator) authenticate(r *http.Request) principal {
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return a.checkToken(r, strings.TrimSpace(secret))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name, err := a.web.verifyClient(r.TLS)
		if err != nil {
			return principal{refusalCode: http.StatusUnauthorized, refusalReason: "the certificate is not accepted: " + err.Error()}
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

// checkToken checks the token before the limit of failures, so that a valid token is accepted no matter how many wrong ones
// others have sent from the same address.
func (a *Authenticator) checkToken(r *http.Request, secret string) principal {
	if t, ok := a.tokens.Load().find(secret); ok {
		by := principal{name: t.name, method: methodToken}
		if t.groups != "" {
			by.groups = strings.Split(t.groups, ",")
		}
		return by
	}
	if !a.limiter.allow(clientOf(r), secret, time.Now()) {
		return principal{refusalCode: http.StatusTooManyRequests, refusalReason: "this token is not in http.token_file, and there were too many wrong tokens from this address or too many attempts with this one: wait a moment"}
	}
	a.log.Warn("wrong token in an HTTP request", "from", r.RemoteAddr, "path", r.URL.Path)
	return principal{refusalCode: http.StatusUnauthorized, refusalReason: "this token is not in http.token_file"}
}

// sanitizeName makes a name that others have chosen safe to display: printable, valid UTF-8 and at most maxNameLen characters.
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
