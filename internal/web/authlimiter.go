package web

import (
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxFailures is the number of wrong tokens that an address may send in a burst; failureInterval is the time after which it may
	// send another one.
	maxFailures     = 10
	failureInterval = 5 * time.Second
	// maxFailureLimiters is the maximum number of separate limiters.
	maxFailureLimiters = 1024
)

// authLimiter limits failed authentication attempts by address, by IPv6 network and by token. It is used only after a token
// was found to be wrong, so it cannot lock out a valid one.
type authLimiter struct {
	mu       sync.Mutex
	limiters map[failureKey]*rate.Limiter
	overflow *rate.Limiter // shared by all keys beyond maxFailureLimiters
}

// failureKey is the key by which failures are counted. One of its fields is set.
type failureKey struct {
	client client
	token  [sha256.Size]byte
}

func newAuthLimiter() *authLimiter {
	return &authLimiter{limiters: make(map[failureKey]*rate.Limiter), overflow: newFailureLimiter(1)}
}

// newFailureLimiter returns a limiter that allows times as many failures as one address may cause.
func newFailureLimiter(times int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(failureInterval/time.Duration(times)), maxFailures*times)
}

// allow counts a wrong token. It returns false if there were too many.
func (l *authLimiter) allow(from client, secret string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := []*rate.Limiter{
		l.limiter(failureKey{client: client{address: from.address}}, 1, now), l.limiter(failureKey{token: sha256.Sum256([]byte(secret))}, 1, now),
	}
	if from.network != "" {
		limits = append(limits, l.limiter(failureKey{client: client{network: from.network}}, 2*networkFactor, now))
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

func (l *authLimiter) limiter(g failureKey, times int, now time.Time) *rate.Limiter {
	if known, ok := l.limiters[g]; ok {
		return known
	}
	if len(l.limiters) >= maxFailureLimiters {
		l.dropIdle(now)
	}
	if len(l.limiters) >= maxFailureLimiters {
		return l.overflow
	}
	l.limiters[g] = newFailureLimiter(times)
	return l.limiters[g]
}

// dropIdle removes the limiters whose failures have all expired.
func (l *authLimiter) dropIdle(now time.Time) {
	for g, limit := range l.limiters {
		if limit.TokensAt(now) >= float64(limit.Burst()) {
			delete(l.limiters, g)
		}
	}
}
