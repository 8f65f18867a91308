package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nightsToken may appear only in its file and in the requests of its owner.
const nightsToken = "6f1c0d3e5b7a49288c1d2e3f4a5b6c7d"

// tokens writes a token file, and returns the setting.
func (f *fleet) tokens(text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, "tokens")
	put(f.t, path, text)
	return "token_file: " + path
}

// address returns the address on which a daemon listens, from its log.
func (f *fleet) address(id string) string {
	f.t.Helper()
	var found []string
	f.eventually(id+" listens", func() bool {
		found = regexp.MustCompile(`msg="Listening on".* address=(\S+)`).FindStringSubmatch(f.daemons[id].Output())
		return found != nil
	})
	return found[1]
}

// post sends a request, with a token if there is one.
func post(c *http.Client, url, token, body string) (int, string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

// Insecure or unreadable secrets, work that may outlive its lease, and an address that another program has are reported at the start, not
// when they are needed.
func TestAStartIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tokens := f.tokens("night-shift:" + nightsToken)
	for extra, want := range map[string]string{
		"child: {command: [ledger-child], stop_timeout: 10s}\n":                                   "child.stop_timeout 10s does not fit the lease of 1.8s",
		"http: {listen: '127.0.0.1:0', token_file: /no/tokens}\n":                                 "http.token_file: /no/tokens cannot be read: no such file",
		"http: {listen: '127.0.0.1:0', token_file: tokens}\n":                                     "$CREDENTIALS_DIRECTORY is not set",
		"http: {listen: '127.0.0.1:0', web_config: /no/web.yml}\n":                                "http.web_config: /no/web.yml cannot be read: no such file",
		"http: {token_file: /no/tokens}\n":                                                        "http.token_file: has no effect: set http.listen as well",
		"http: {listen: 'unix:" + f.socket("s") + "', web_config: /no/web.yml, " + tokens + "}\n": "http.web_config: needs host:port in http.listen",
	} {
		f.configure("a", "dc1", 1, extra)
		f.failsWith(want, "run", "--config", f.file("a"), "--no-respawn")
		f.failsWith(want, "check", "--config", f.file("a"))
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f.configure("a", "dc1", 1, fmt.Sprintf("http: {listen: '%s'}\n", taken.Addr()))
	f.failsWith(fmt.Sprintf("http.listen %s: listen tcp %[1]s: bind: address already in use", taken.Addr()), "run", "--config", f.file("a"))
	f.configure("a", "dc1", 1, "http: {listen: '0.0.0.0:0', "+tokens+"}\n")
	f.start("a")
	f.logged("a", "the tokens in http.token_file are sent over the network in clear text")
	f.until("a leads all the same", leads("a"))
	f.stop("a")
}
