package httpapi

import (
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxGuesses is how many wrong tokens an address may send at once, guessEvery how long it takes until it may send one more.
	maxGuesses = 10
	guessEvery = 5 * time.Second
	// maxGuessers bounds the limits that are remembered apart.
	maxGuessers = 1024
)

// authLimiter limits failed attempts to authenticate, by address, by IPv6 network and by the token that was sent. It is
// asked after the token was found wrong and never before, so it can't keep the right one out.
type authLimiter struct {
	mu     sync.Mutex
	by     map[guesser]*rate.Limiter
	others *rate.Limiter // of all that there is no room for
}

// guesser is what failures are counted by: one of the two is set.
type guesser struct {
	source source
	token  [sha256.Size]byte
}

func newAuthLimiter() *authLimiter {
	return &authLimiter{by: make(map[guesser]*rate.Limiter), others: guessLimit(1)}
}

// guessLimit returns the limit of an address, or several times that.
func guessLimit(times int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(guessEvery/time.Duration(times)), maxGuesses*times)
}

// allow counts a wrong token, and reports whether its sender has not sent too many.
func (l *authLimiter) allow(from source, secret string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := []*rate.Limiter{
		l.limit(guesser{source: source{address: from.address}}, 1, now), l.limit(guesser{token: sha256.Sum256([]byte(secret))}, 1, now),
	}
	if from.network != "" {
		limits = append(limits, l.limit(guesser{source: source{network: from.network}}, 2*networkShare, now))
	}
	for _, limit := range limits {
		if limit.TokensAt(now) < 1 {
			return false
		}
	}
	for _, limit := range limits {
		limit.AllowN(now, 1)
	}
	return true
}

func (l *authLimiter) limit(g guesser, times int, now time.Time) *rate.Limiter {
	if known, ok := l.by[g]; ok {
		return known
	}
	if len(l.by) >= maxGuessers {
		l.forget(now)
	}
	if len(l.by) >= maxGuessers {
		return l.others
	}
	l.by[g] = guessLimit(times)
	return l.by[g]
}

// forget drops the limits that nothing counts against any more.
func (l *authLimiter) forget(now time.Time) {
	for g, limit := range l.by {
		if limit.TokensAt(now) >= float64(limit.Burst()) {
			delete(l.by, g)
		}
	}
}
