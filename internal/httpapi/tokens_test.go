package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokenFiles(t *testing.T) {
	const secret = "s3cret-s3cret-s3cret"
	good := tokenFile(t, "# who\n\n ann:"+secret+" \r\nbob@dc1:"+annsToken+"==\n", 0o400)
	tokens, err := ReadTokens(good, false)
	if err != nil || tokens.owner(secret) != "ann" || tokens.owner(annsToken+"==") != "bob@dc1" {
		t.Errorf("%v, %d tokens", err, len(tokens.all))
	}
	for _, wrong := range []string{"", secret + "x", secret[1:], "ann", "ann:" + secret, strings.ToUpper(secret)} {
		if owner := tokens.owner(wrong); owner != "" {
			t.Errorf("%q is taken for the token of %s", wrong, owner)
		}
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"others may read it":     {"ann:" + secret, 0o644, "has mode 0644, so that others may get at the secret: chmod 0600 it"},
		"its group may read it":  {"ann:" + secret, 0o640, "has mode 0640"},
		"empty":                  {"", 0o600, "holds no line name:token"},
		"comments":               {"# ann:" + secret, 0o600, "holds no line name:token"},
		"a token alone":          {"# who\n" + secret, 0o600, ":2: is not name:token"},
		"turned round":           {secret + "!!:ann", 0o600, ":1: the name before the colon may have"},
		"a short token":          {"ann:" + secret[:15], 0o600, ":1: the token has fewer than 16 characters; 'openssl rand -hex 16' makes one"},
		"a token with blanks":    {"ann:" + secret + " x", 0o600, ":1: the token may have letters"},
		"a token with umlauts":   {"ann:" + secret + "ä", 0o600, ":1: the token may have letters"},
		"a name given twice":     {"ann:" + secret + "\nann:" + annsToken, 0o600, ":2: this name is given twice"},
		"a token given twice":    {"ann:" + secret + "\nbob:" + secret, 0o600, ":2: this token is another's already"},
		"larger than it can be":  {strings.Repeat("#", 1<<20+1), 0o600, "is larger than"},
		"a name that is no name": {"an n:" + secret, 0o600, ":1: the name before the colon may have"},
	} {
		path := tokenFile(t, c.text, c.mode)
		tokens, err := ReadTokens(path, false)
		if err == nil || !strings.HasPrefix(err.Error(), "http.token_file: "+path) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "s3cret") || len(tokens.all) > 0 {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "no"), false); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := ReadTokens(t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := ReadTokens("tokens", false); err == nil || !strings.Contains(err.Error(), "$CREDENTIALS_DIRECTORY is not set") {
		t.Errorf("a credential without systemd: %v", err)
	}
	if _, err := ReadTokens(tokenFile(t, "ann:"+secret, 0o440), true); err != nil {
		t.Errorf("a credential of systemd: %v", err)
	}
}

// Some wrong tokens in a row, and an address has to wait, whatever it sends; the others don't.
func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateOf(t, "ann:"+annsToken)
		try := func(from, token string) int {
			r, _ := http.NewRequest("POST", "/v1/elect", nil)
			r.RemoteAddr = from
			r.Header.Set("Authorization", "Bearer "+token)
			return g.who(r).code
		}
		const bad = "192.0.2.1:4711"
		for range 3 * maxGuesses { // the right one costs nothing
			if code := try(bad, annsToken); code != 0 {
				t.Fatalf("ann: %d", code)
			}
		}
		for i := range maxGuesses {
			if code := try(bad, fmt.Sprint("wrong", i)); code != 401 {
				t.Fatalf("guess %d: %d", i, code)
			}
		}
		for _, token := range []string{"wrong", annsToken} {
			if code := try("192.0.2.1:4712", token); code != 429 {
				t.Errorf("one guess more: %d", code)
			}
		}
		if code := try("192.0.2.2:4711", annsToken); code != 0 {
			t.Errorf("from elsewhere: %d", code)
		}
		<-time.After(guessEvery) // of the bubble's clock
		if code := try(bad, annsToken); code != 0 {
			t.Errorf("a moment later: %d", code)
		}
	})
}

// Whoever has any number of addresses gets no further, and costs no memory.
func TestGuessersAreBounded(t *testing.T) {
	g, now := newGuesses(), time.Now()
	wrong := func() bool { return false }
	for i := range 5 * maxGuessers {
		g.try(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), now, wrong)
	}
	if len(g.by) > maxGuessers {
		t.Errorf("%d addresses are remembered", len(g.by))
	}
	if g.try("10.99.0.1:1", now, func() bool { return true }) {
		t.Error("one more address has guesses of its own")
	}
	if now = now.Add(maxGuesses * guessEvery); !g.try("10.99.0.1:1", now, wrong) || len(g.by) != 1 {
		t.Errorf("later %d addresses are remembered", len(g.by))
	}
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
	} {
		if got := origin(remote); got != netip.MustParsePrefix(want) {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
	if got := origin("@"); got.IsValid() {
		t.Errorf("a socket is of %s", got)
	}
}
