package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// nameOf returns the owner of a token, "" if there is none.
func (t Tokens) nameOf(secret string) string {
	found, _ := t.find(secret)
	return found.name
}

func TestTokenFiles(t *testing.T) {
	const secret = "s3cret-s3cret-s3cret"
	good := tokenFile(t, "# who\n\n ann:"+secret+" \r\nbob@dc1:"+annsToken+"==\n", 0o400)
	tokens, err := ReadTokens(good, false)
	if err != nil || tokens.nameOf(secret) != "ann" || tokens.nameOf(annsToken+"==") != "bob@dc1" {
		t.Errorf("%v, %d tokens", err, len(tokens.all))
	}
	for _, wrong := range []string{"", secret + "x", secret[1:], "ann", "ann:" + secret, strings.ToUpper(secret)} {
		if owner := tokens.nameOf(wrong); owner != "" {
			t.Errorf("%q is accepted as the token of %s", wrong, owner)
		}
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"others may read it":     {"ann:" + secret, 0o644, "has mode 0644, so other users may be able to read the secret: chmod 0600 "},
		"empty":                  {"", 0o600, "has no name:token line"},
		"a token alone":          {"# who\n" + secret, 0o600, ":2: is not name:token"},
		"token and name swapped": {secret + "!!:ann", 0o600, ":1: the name before the colon may have"},
		"a short token":          {"ann:" + secret[:15], 0o600, ":1: the token has fewer than 16 characters; create one with 'openssl rand -hex 16'"},
		"a token with blanks":    {"ann:" + secret + " x y", 0o600, ":1: after the token and a space there must be the names of groups, separated by commas only"},
		"groups without a name":  {"ann:" + secret + " billing,", 0o600, ":1: after the token and a space"},
		"a token with umlauts":   {"ann:" + secret + "ä", 0o600, ":1: the token may have only letters"},
		"a name given twice":     {"ann:" + secret + "\nann:" + annsToken, 0o600, ":2: this name appears twice"},
		"a token given twice":    {"ann:" + secret + "\nbob:" + secret, 0o600, ":2: this token already belongs to another name"},
		"larger than it can be":  {strings.Repeat("#", 1<<20+1), 0o600, "is larger than"},
	} {
		path := tokenFile(t, c.text, c.mode)
		tokens, err := ReadTokens(path, false)
		if err == nil || !strings.HasPrefix(err.Error(), "http.token_file: "+path) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "s3cret") || len(tokens.all) > 0 {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "no"), false); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadTokens(t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := ReadTokens("tokens", false); err == nil || !strings.Contains(err.Error(), "$CREDENTIALS_DIRECTORY is not set") {
		t.Errorf("a credential without systemd: %v", err)
	}
	if _, err := ReadTokens(tokenFile(t, "ann:"+secret, 0o440), true); err != nil {
		t.Errorf("a credential of systemd: %v", err)
	}
}

// However many wrong tokens come, the right one is accepted, and the log stays short.
func TestWrongTokensDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, log := authenticatorOf(t, "ann:"+annsToken), new(logBuffer)
		a.log = slog.New(slog.NewTextHandler(log, nil))
		send := func(token string) int {
			r := httptest.NewRequest("POST", "/v1/reelect", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			return a.authenticate(r).refusalCode
		}
		lines := func() int { return strings.Count(log.text.String(), "wrong token") }
		for range 100 {
			if wrong, right := send("wrong"), send(annsToken); wrong != http.StatusUnauthorized || right != 0 {
				t.Fatalf("wrong: %d, right: %d", wrong, right)
			}
		}
		if lines() != maxLogged {
			t.Errorf("%d lines", lines())
		}
		<-time.After(logInterval) // by the clock of the synctest bubble
		if send("wrong"); lines() != maxLogged+1 {
			t.Errorf("%d lines, a moment later", lines())
		}
	})
}
