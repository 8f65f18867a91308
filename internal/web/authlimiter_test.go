package web

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// tryToken authenticates with a token from an address, and returns the status of the refusal, or 0 if it succeeds.
func tryToken(g *Authenticator, from, token string) int {
	r, _ := http.NewRequest("POST", "/v1/reelect", nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+token)
	return g.authenticate(r).refusalCode
}

// After several wrong tokens an address must wait before it may try another one. The valid token never has to wait.
func TestWrongTokensAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := authenticatorOf(t, "ann:"+annsToken)
		const bad = "192.0.2.1:4711"
		for i := range maxFailures {
			if code := tryToken(g, bad, fmt.Sprint("wrong", i)); code != 401 {
				t.Fatalf("attempt %d: %d", i, code)
			}
		}
		for _, from := range []string{bad, "192.0.2.1:4712"} {
			if code := tryToken(g, from, "wrong"); code != 429 {
				t.Errorf("one more attempt: %d", code)
			}
			if code := tryToken(g, from, annsToken); code != 0 {
				t.Errorf("the right token: %d", code)
			}
		}
		if code := tryToken(g, "192.0.2.2:4711", "wrong"); code != 401 {
			t.Errorf("from elsewhere: %d", code)
		}
		<-time.After(failureInterval) // by the clock of the synctest bubble
		if code := tryToken(g, bad, "wrong"); code != 401 {
			t.Errorf("a moment later: %d", code)
		}
	})
}

// A replaced token that many hosts still send is limited too.
func TestWrongTokenIsLimitedAcrossAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := authenticatorOf(t, "ann:"+annsToken)
		for i := range maxFailures {
			if code := tryToken(g, fmt.Sprintf("192.0.2.%d:1", i+1), "the-old-token"); code != 401 {
				t.Fatalf("host %d: %d", i, code)
			}
		}
		if code := tryToken(g, "192.0.2.99:1", "the-old-token"); code != 429 {
			t.Errorf("one more host: %d", code)
		}
		if code := tryToken(g, "192.0.2.99:1", "another"); code != 401 {
			t.Errorf("another token from there: %d", code)
		}
	})
}

// A host cannot use up the attempts of its neighbors in an IPv6 network, nor get more by using more addresses.
func TestWrongTokensAreLimitedPerIPv6Network(t *testing.T) {
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
			t.Errorf("its neighbor: %d after %d attempts", code, tried)
		}
		for i := range 50 {
			for range maxFailures {
				guess(fmt.Sprintf("[2001:db8::1:%x]:1", i))
			}
		}
		if want := 2 * networkFactor * maxFailures; tried != want {
			t.Errorf("with 50 addresses %d attempts, want %d", tried, want)
		}
		if code := tryToken(g, "[2001:db8::1]:1", annsToken); code != 0 {
			t.Errorf("the right token: %d", code)
		}
		if code := guess("[2001:db8:0:1::1]:1"); code != 401 {
			t.Errorf("another network: %d", code)
		}
	})
}

// Any number of addresses uses only limited memory.
func TestFailureLimitersAreBounded(t *testing.T) {
	l, now := newAuthLimiter(), time.Now()
	for i := range 5 * maxFailureLimiters {
		l.allow(clientAt(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)), fmt.Sprint(i), now)
	}
	if len(l.limiters) > maxFailureLimiters {
		t.Errorf("%d limiters are stored", len(l.limiters))
	}
	if l.allow(clientAt("10.99.0.1:1"), "x", now) {
		t.Error("one more address has its own limiter")
	}
	if now = now.Add(maxFailures * failureInterval); !l.allow(clientAt("10.99.0.1:1"), "x", now) || len(l.limiters) != 2 {
		t.Errorf("later, %d limiters are stored", len(l.limiters))
	}
}

func TestClientAt(t *testing.T) {
	for remote, want := range map[string]client{
		"192.0.2.1:80": {address: "192.0.2.1"}, "[::ffff:192.0.2.1]:80": {address: "192.0.2.1"},
		"[2001:db8:1:2:3::4]:80": {address: "2001:db8:1:2:3::4", network: "2001:db8:1:2::/64"},
		"[fe80::1%eth0]:80":      {address: "fe80::1%eth0", network: "fe80::/64"}, "@": {address: "@"},
	} {
		if got := clientAt(remote); got != want {
			t.Errorf("%s: %+v, want %+v", remote, got, want)
		}
	}
}
