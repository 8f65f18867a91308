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

// Gate finds out who asks, and whether they may submit operator requests.
type Gate struct {
	log     *slog.Logger
	web     Web
	tokens  atomic.Pointer[Tokens]
	limiter *authLimiter
}

// NewGate returns a gate that knows the certificates and users of a web configuration, and no token yet.
func NewGate(web Web, log *slog.Logger) *Gate {
	g := &Gate{log: log, web: web, limiter: newAuthLimiter()}
	g.Use(Tokens{})
	return g
}

// Use has the gate know these tokens, and no others.
func (g *Gate) Use(t Tokens) { g.tokens.Store(&t) }

// How somebody has shown who he is.
const (
	byToken       = "token"
	byCertificate = "certificate"
	bySocket      = "socket"
	byPassword    = "password"
)

// asker is who asks; code and why are the refusal of an operator request, 0 if it is allowed.
type asker struct {
	name, how string
	code      int
	why       string
}

// who looks at what a request brings along: a token decides, where there is one; then a certificate, a socket, a password.
func (g *Gate) who(r *http.Request) asker {
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return g.bearer(r, strings.TrimSpace(secret))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name, err := g.web.holder(r.TLS)
		if err != nil {
			return asker{code: http.StatusUnauthorized, why: "the certificate is not accepted: " + err.Error()}
		}
		return asker{name: shortened(name), how: byCertificate}
	}
	if c := connOf(r); c != nil && c.peer != nil {
		return asker{name: shortened(procinfo.AtHost(procinfo.UserName(int(c.peer.Uid)))), how: bySocket}
	}
	if name, _, ok := r.BasicAuth(); ok && g.web.named(name) {
		return asker{name: shortened(name), how: byPassword, code: http.StatusForbidden,
			why: "a password of http.web_config lets read; operator requests need a client certificate"}
	}
	return asker{code: http.StatusUnauthorized, why: g.wanting(r)}
}

// wanting says what would do.
func (g *Gate) wanting(r *http.Request) string {
	switch {
	case len(g.tokens.Load().all) > 0:
		return "operator requests need a token of http.token_file (Authorization: Bearer), or a client certificate"
	case r.TLS != nil:
		return "operator requests need a client certificate, or http.token_file"
	}
	return "this daemon accepts no operator requests here: set http.token_file, or client certificates in http.web_config"
}

// bearer checks the token first: failures are limited, the right token is let in whatever others have sent from its address.
func (g *Gate) bearer(r *http.Request, secret string) asker {
	if name := g.tokens.Load().owner(secret); name != "" {
		return asker{name: name, how: byToken}
	}
	if !g.limiter.allow(sourceOf(r), secret, time.Now()) {
		return asker{code: http.StatusTooManyRequests, why: "this token is not in http.token_file, and too many wrong ones were sent from this address, or this one too often: wait a moment"}
	}
	g.log.Warn("a wrong token over HTTP", "from", r.RemoteAddr, "path", r.URL.Path)
	return asker{code: http.StatusUnauthorized, why: "this token is not in http.token_file"}
}

// shortened keeps a name that others have chosen from doing harm where it is shown.
func shortened(name string) string {
	name = status.Plain(strings.ToValidUTF8(name, "?"))
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName])
	}
	return name
}

const maxName = 64

// peerOf returns who is at the other end of a unix socket, as the kernel says.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, inner)
}
