package httpapi

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"sync"
)

const (
	// maxChecks is how many passwords are checked at once, clientChecks how many of one address. The toolkit checks one after
	// another, at 50 ms or more each, and has them wait without a limit.
	maxChecks    = 16
	clientChecks = 4
	// maxRight bounds the credentials that are remembered.
	maxRight = 256
)

// passwords limits the passwords that wait to be checked, so that wrong ones don't keep everybody out. What was right once does
// not count: it is let in whatever others send from its address.
type passwords struct {
	checks *shares
	mu     sync.Mutex
	right  map[[sha256.Size]byte]struct{} // the Authorization headers, which may be wrong by now
}

func newPasswords() *passwords {
	return &passwords{checks: newShares(maxChecks, clientChecks), right: make(map[[sha256.Size]byte]struct{})}
}

// passKey is the key of the function in a request's context that ends its check.
type passKey struct{}

// before is the handler in front of the toolkit's.
func (p *passwords) before(toolkit http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			toolkit.ServeHTTP(w, r)
			return
		}
		key, done := sha256.Sum256([]byte(r.Header.Get("Authorization"))), func() {}
		if !p.known(key) {
			from := sourceOf(r)
			if !p.checks.take(from) {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many passwords to check at once, in all or from "+from.address, http.StatusServiceUnavailable)
				return
			}
			done = sync.OnceFunc(func() { p.checks.give(from) })
		}
		defer done()
		passed := false
		toolkit.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passKey{}, func() {
			passed = true
			p.remember(key)
			done() // the answer itself may take long
		})))
		if !passed {
			p.forget(key)
		}
	})
}

// behind is the handler that the toolkit lets requests through to.
func (p *passwords) behind(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass, ok := r.Context().Value(passKey{}).(func()); ok {
			pass()
		}
		next.ServeHTTP(w, r)
	})
}

func (p *passwords) known(key [sha256.Size]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.right[key]
	return ok
}

func (p *passwords) remember(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.right {
		if len(p.right) < maxRight {
			break
		}
		delete(p.right, old) // any: only who knows a password gets here
	}
	p.right[key] = struct{}{}
}

func (p *passwords) forget(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.right, key)
}

// beginning is a listener that calls begin before it accepts for the first time. The toolkit puts its handler into the
// server and has no place for one in front of it; but that is done once it accepts, and no request is being served yet.
type beginning struct {
	net.Listener
	once  sync.Once
	begin func()
}

// Accept implements net.Listener.
func (b *beginning) Accept() (net.Conn, error) {
	b.once.Do(b.begin)
	return b.Listener.Accept()
}
