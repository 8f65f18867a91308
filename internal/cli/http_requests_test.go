package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/test/zkserver"
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

// clientTrusting returns a client that trusts a CA, with client certificates if there are any.
func clientTrusting(t *testing.T, a *zkserver.Authority, own ...zkserver.Certificate) *http.Client {
	t.Helper()
	conf := &tls.Config{RootCAs: x509.NewCertPool()}
	if !conf.RootCAs.AppendCertsFromPEM([]byte(read(a.CA))) {
		t.Fatal("no CA")
	}
	for _, c := range own {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = append(conf.Certificates, pair)
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf}, Timeout: testTimeout}
}

// Reloads add and remove tokens, certificates are accepted, and commands work without the lease of a leader under TLS.
func TestRequestsUnderTLS(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ca := authority(t, f.dir, "ca")
	issue(t, ca, "host")
	ann := issue(t, ca, "ann")
	web := filepath.Join(f.dir, "web.yml")
	put(t, web, "tls_server_config: {cert_file: host.crt, key_file: host.key, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem}\n")
	configure := func(tokens string) {
		f.configure("a", "dc1", 1, fmt.Sprintf("http: {listen: '127.0.0.1:0', web_config: %s, %s}\n", web, tokens))
	}
	configure("")
	f.start("a")
	f.until("a leads", leads("a"))
	url := "https://" + f.address("a")
	pause := func(c *http.Client, token string) int {
		t.Helper()
		code, answer := post(c, url+"/v1/pause", token, "{}")
		t.Log(code, strings.TrimSpace(answer))
		return code
	}
	anonymous := clientTrusting(t, ca)
	if code := pause(clientTrusting(t, ca, ann), ""); code != 200 || f.snapshot().Control.Record.Pause.By != "ann" {
		t.Errorf("a certificate: %d, %+v", code, f.snapshot().Control.Record)
	}
	if code := pause(anonymous, nightsToken); code != 401 {
		t.Errorf("a token before there is a file: %d", code)
	}
	reload := func(want string) {
		t.Helper()
		if out := f.reloads("a"); !strings.Contains(out, want) {
			t.Errorf("%s, want %s", out, want)
		}
	}
	const read, refused = "a has reloaded its configuration", "reload refused"
	configure(f.tokens("night-shift:" + nightsToken))
	reload(read + ": applied: http.token_file")
	if code := pause(anonymous, nightsToken); code != 200 {
		t.Errorf("a token that was set by a reload: %d", code)
	}
	f.tokens("night-shift:" + nightsToken + "\nday-shift:short")
	reload(refused)
	reload("tokens:2: the token has fewer than 16 characters")
	if code := pause(anonymous, nightsToken); code != 200 {
		t.Errorf("the token from before a reload that was refused: %d", code)
	}
	f.tokens("day-shift:" + strings.Repeat("d", 16))
	reload(read + ": applied: http.token_file")
	reload(read + ": no setting has changed")
	f.logged("a", "reloaded, no setting has changed")
	if old, now := pause(anonymous, nightsToken), pause(anonymous, strings.Repeat("d", 16)); old != 401 || now != 200 {
		t.Errorf("the token that was taken away: %d, the new one: %d", old, now)
	}
	os.Chmod(filepath.Join(f.dir, "tokens"), 0o644)
	reload("has mode 0644")
	os.Chmod(filepath.Join(f.dir, "tokens"), 0o600)
	if err := os.Rename(web, web+".old"); err != nil {
		t.Fatal(err)
	}
	reload("http.web_config: " + web + " cannot be read")
	if err := os.Rename(web+".old", web); err != nil {
		t.Fatal(err)
	}

	if out, err := f.run("status"); err != nil || !strings.Contains(out, "Leader   a") || strings.Contains(out, "Lease") {
		t.Errorf("%v\n%s", err, out)
	}
	f.succeedsWith(`"api": "https://127.0.0.1:0"`, "status", "-o", "json")
	if out, err := f.run("leader"); err != nil || out != "a\n" {
		t.Errorf("%v %s", err, out)
	}
	f.checkSecret(nightsToken, f.daemon("a"))
	if strings.Contains(f.daemons["a"].Output(), "clear text") {
		t.Error("it warns of clear text under TLS")
	}
	f.checkInvariants()
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
