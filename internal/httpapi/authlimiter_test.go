package httpapi

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// tryToken sends a token from an address, and returns the status of the refusal, 0 if there is none.
func tryToken(g *Authenticator, from, token string) int {
	r, _ := http.NewRequest("POST", "/v1/reelect", nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+token)
	return g.authenticate(r).refusalCode
}

// Some wrong tokens in a row, and an address has to wait before its next one is looked at; the right one never has to.
func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := authenticatorOf(t, "ann:"+annsToken)
		const bad = "192.0.2.1:4711"
		for i := range maxFailures {
			if code := tryToken(g, bad, fmt.Sprint("wrong", i)); code != 401 {
				t.Fatalf("guess %d: %d", i, code)
			}
		}
		for _, from := range []string{bad, "192.0.2.1:4712"} {
			if code := tryToken(g, from, "wrong"); code != 429 {
				t.Errorf("one guess more: %d", code)
			}
			if code := tryToken(g, from, annsToken); code != 0 {
				t.Errorf("the right token: %d", code)
			}
		}
		if code := tryToken(g, "192.0.2.2:4711", "wrong"); code != 401 {
			t.Errorf("from elsewhere: %d", code)
		}
		<-time.After(failureInterval) // of the bubble's clock
		if code := tryToken(g, bad, "wrong"); code != 401 {
			t.Errorf("a moment later: %d", code)
		}
	})
}

// A token that was replaced, and that many hosts still send, is limited as well.
func TestATokenIsLimitedWhereverItIsSentFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := authenticatorOf(t, "ann:"+annsToken)
		for i := range maxFailures {
			if code := tryToken(g, fmt.Sprintf("192.0.2.%d:1", i+1), "the-old-token"); code != 401 {
				t.Fatalf("host %d: %d", i, code)
			}
		}
		if code := tryToken(g, "192.0.2.99:1", "the-old-token"); code != 429 {
			t.Errorf("one host more: %d", code)
		}
		if code := tryToken(g, "192.0.2.99:1", "another"); code != 401 {
			t.Errorf("another token from there: %d", code)
		}
	})
}

// A host of an IPv6 network can't use up what its neighbors may try, and has no more tries by having more addresses.
func TestIPv6NetworksAreLimitedApartFromTheirAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := authenticatorOf(t, "ann:"+annsToken)
		tried, n := 0, 0
		guess := func(from string) int {
			n++
			code := tryToken(g, from, fmt.Sprint("wrong", n))
			if code == 401 {
				tried++
			}
			return code
		}
		for range 5 * maxFailures {
			guess("[2001:db8::1]:1")
		}
		if code := guess("[2001:db8::2]:1"); code != 401 || tried != maxFailures+1 {
			t.Errorf("its neighbor: %d after %d tries", code, tried)
		}
		for i := range 50 {
			for range maxFailures {
				guess(fmt.Sprintf("[2001:db8::1:%x]:1", i))
			}
		}
		if want := 2 * networkFactor * maxFailures; tried != want {
			t.Errorf("with 50 addresses %d tries, want %d", tried, want)
		}
		if code := tryToken(g, "[2001:db8::1]:1", annsToken); code != 0 {
			t.Errorf("the right token: %d", code)
		}
		if code := guess("[2001:db8:0:1::1]:1"); code != 401 {
			t.Errorf("another network: %d", code)
		}
	})
}

// Many addresses get no further, and cost no memory.
func TestGuessersAreBounded(t *testing.T) {
	l, now := newAuthLimiter(), time.Now()
	for i := range 5 * maxFailureLimiters {
		l.allow(clientAt(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)), fmt.Sprint(i), now)
	}
	if len(l.limiters) > maxFailureLimiters {
		t.Errorf("%d limits are remembered", len(l.limiters))
	}
	if l.allow(clientAt("10.99.0.1:1"), "x", now) {
		t.Error("one more address has guesses of its own")
	}
	if now = now.Add(maxFailures * failureInterval); !l.allow(clientAt("10.99.0.1:1"), "x", now) || len(l.limiters) != 2 {
		t.Errorf("later %d limits are remembered", len(l.limiters))
	}
}

func TestWhatCountsAsOneSource(t *testing.T) {
	for remote, want := range map[string]client{
		"192.0.2.1:80": {address: "192.0.2.1"}, "[::ffff:192.0.2.1]:80": {address: "192.0.2.1"},
		"[2001:db8:1:2:3::4]:80": {address: "2001:db8:1:2:3::4", network: "2001:db8:1:2::/64"},
		"[fe80::1%eth0]:80":      {address: "fe80::1%eth0", network: "fe80::/64"}, "@": {address: "@"},
	} {
		if got := clientAt(remote); got != want {
			t.Errorf("%s is of %+v, want %+v", remote, got, want)
		}
	}
}
