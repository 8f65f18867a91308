package httpapi

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"sync"
)

const (
	// maxPasswordChecks limits how many requests may wait for the check of their password; maxClientPasswordChecks those of one
	// address. The toolkit checks one after another, which takes 50 ms or more each, and does not limit the queue.
	maxPasswordChecks       = 16
	maxClientPasswordChecks = 4
	// maxVerified limits the number of remembered credentials.
	maxVerified = 256
)

// passwordLimiter limits the queue of password checks, so that wrong passwords do not block valid ones. Credentials that were
// correct before are exempt: they are accepted no matter what others send from the same address.
type passwordLimiter struct {
	checks   *quota
	mu       sync.Mutex
	verified map[[sha256.Size]byte]struct{} // hashes of Authorization headers that were correct; the toolkit still checks them
}

func newPasswordLimiter() *passwordLimiter {
	return &passwordLimiter{checks: newQuota(maxPasswordChecks, maxClientPasswordChecks), verified: make(map[[sha256.Size]byte]struct{})}
}

// verifiedKey is the context key of the function that noteVerified calls.
type verifiedKey struct{}

// limitChecks returns a handler in front of the toolkit's handler that limits the queue of password checks.
func (p *passwordLimiter) limitChecks(toolkit http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			toolkit.ServeHTTP(w, r)
			return
		}
		key, done := sha256.Sum256([]byte(r.Header.Get("Authorization"))), func() {}
		if !p.isVerified(key) {
			from := clientOf(r)
			if !p.checks.acquire(from) {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many password checks, in total or from "+from.address, http.StatusServiceUnavailable)
				return
			}
			done = sync.OnceFunc(func() { p.checks.release(from) })
		}
		defer done()
		passed := false
		toolkit.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), verifiedKey{}, func() {
			passed = true
			p.remember(key)
			done() // the response itself may take long
		})))
		if !passed {
			p.forget(key)
		}
	})
}

// noteVerified returns a handler behind the toolkit's: requests reach it only with a correct password.
func (p *passwordLimiter) noteVerified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass, ok := r.Context().Value(verifiedKey{}).(func()); ok {
			pass()
		}
		next.ServeHTTP(w, r)
	})
}

func (p *passwordLimiter) isVerified(key [sha256.Size]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.verified[key]
	return ok
}

func (p *passwordLimiter) remember(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.verified {
		if len(p.verified) < maxVerified {
			break
		}
		delete(p.verified, old) // any one: only clients that know a password can fill the map
	}
	p.verified[key] = struct{}{}
}

func (p *passwordLimiter) forget(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.verified, key)
}

// hookedListener calls onFirstAccept before it accepts the first connection. The toolkit sets the server's handler itself and
// offers no way to put another in front of it. At the first Accept it has done so, and no request is being served yet.
type hookedListener struct {
	net.Listener
	once          sync.Once
	onFirstAccept func()
}

// Accept implements net.Listener.
func (b *hookedListener) Accept() (net.Conn, error) {
	b.once.Do(b.onFirstAccept)
	return b.Listener.Accept()
}
