package httpapi

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/procinfo"
	"zkelectd/internal/status"
)

// Authenticator identifies clients, and decides whether they may submit operator requests.
type Authenticator struct {
	log     *slog.Logger
	web     Web
	tokens  atomic.Pointer[Tokens]
	limiter *authLimiter
}

// NewAuthenticator returns an authenticator with the certificates and users of a web configuration, and no tokens.
func NewAuthenticator(web Web, log *slog.Logger) *Authenticator {
	a := &Authenticator{log: log, web: web, limiter: newAuthLimiter()}
	a.Use(Tokens{})
	return a
}

// Use replaces the tokens.
func (a *Authenticator) Use(t Tokens) { a.tokens.Store(&t) }

// How a client is authenticated.
const (
	byToken       = "token"
	byCertificate = "certificate"
	bySocket      = "socket"
	byPassword    = "password"
)

// principal is an authenticated client. If it may not submit operator requests, code and why are the refusal.
type principal struct {
	name, how string
	code      int
	why       string
}

// authenticate identifies the client by the first of a token, a certificate, a socket and a password that the request has.
func (a *Authenticator) authenticate(r *http.Request) principal {
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return a.bearer(r, strings.TrimSpace(secret))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name, err := a.web.holder(r.TLS)
		if err != nil {
			return principal{code: http.StatusUnauthorized, why: "the certificate is not accepted: " + err.Error()}
		}
		return principal{name: shortened(name), how: byCertificate}
	}
	if c := connOf(r); c != nil && c.peer != nil {
		return principal{name: shortened(procinfo.AtHost(procinfo.UserName(int(c.peer.Uid)))), how: bySocket}
	}
	if name, _, ok := r.BasicAuth(); ok && a.web.named(name) {
		return principal{name: shortened(name), how: byPassword, code: http.StatusForbidden,
			why: "a password of http.web_config only permits reading; operator requests need a client certificate"}
	}
	return principal{code: http.StatusUnauthorized, why: a.wanting(r)}
}

// wanting returns which credentials would be accepted.
func (a *Authenticator) wanting(r *http.Request) string {
	switch {
	case len(a.tokens.Load().all) > 0:
		return "operator requests need a token of http.token_file (Authorization: Bearer), or a client certificate"
	case r.TLS != nil:
		return "operator requests need a client certificate, or http.token_file"
	}
	return "this daemon accepts no operator requests here: set http.token_file, or client certificates in http.web_config"
}

// bearer checks the token first: failures are limited, but a valid token is accepted whatever others sent from its address.
func (a *Authenticator) bearer(r *http.Request, secret string) principal {
	if name := a.tokens.Load().owner(secret); name != "" {
		return principal{name: name, how: byToken}
	}
	if !a.limiter.allow(sourceOf(r), secret, time.Now()) {
		return principal{code: http.StatusTooManyRequests, why: "this token is not in http.token_file, and too many wrong ones were sent from this address, or this one too often: wait a moment"}
	}
	a.log.Warn("a wrong token over HTTP", "from", r.RemoteAddr, "path", r.URL.Path)
	return principal{code: http.StatusUnauthorized, why: "this token is not in http.token_file"}
}

// shortened makes a name that a client has chosen safe to show.
func shortened(name string) string {
	name = status.Plain(strings.ToValidUTF8(name, "?"))
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName])
	}
	return name
}

const maxName = 64

// peerOf returns the credentials of the peer of a unix socket, as reported by the kernel.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, inner)
}
