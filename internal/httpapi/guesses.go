package httpapi

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxGuesses is how many wrong tokens an address may try at once, guessEvery how long it takes until it may try one more.
	maxGuesses = 10
	guessEvery = 5 * time.Second
	// maxGuessers bounds the addresses that are remembered apart.
	maxGuessers = 1024
)

// guesses counts the wrong tokens of each address.
type guesses struct {
	mu     sync.Mutex
	by     map[netip.Prefix]*rate.Limiter
	others *rate.Limiter // of all that there is no room for
}

func newGuesses() *guesses {
	return &guesses{by: make(map[netip.Prefix]*rate.Limiter), others: guesser()}
}

func guesser() *rate.Limiter { return rate.NewLimiter(rate.Every(guessEvery), maxGuesses) }

// try has check look at a token, and counts it if it is wrong. False means that this address has tried too many: then
// not even the right one is looked at.
func (g *guesses) try(remote string, now time.Time, check func() bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := origin(remote)
	l, known := g.by[from]
	if !known {
		l = guesser()
		if len(g.by) >= maxGuessers {
			g.forget(now)
		}
		if len(g.by) >= maxGuessers {
			l = g.others
		}
	}
	if l.TokensAt(now) < 1 {
		return false
	}
	if !check() {
		l.AllowN(now, 1)
		if l != g.others {
			g.by[from] = l
		}
	}
	return true
}

// forget drops those of whom nothing is to be remembered any more.
func (g *guesses) forget(now time.Time) {
	for from, l := range g.by {
		if l.TokensAt(now) >= maxGuesses {
			delete(g.by, from)
		}
	}
}

// origin is what counts as one address: with IPv6 a whole network, since each of its hosts has any number of them.
func origin(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // a socket: whoever can open it is one
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // the number fits
	return p
}
