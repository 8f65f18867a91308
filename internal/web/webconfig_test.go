package web

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

// tlsServer is a daemon's TLS endpoint with its certificate authorities.
type tlsServer struct {
	t         *testing.T
	dir       string
	operators *zkserver.Authority // signs certificates that may submit requests
	server    zkserver.Certificate
	roots     *x509.CertPool
	log       *logBuffer
}

// logBuffer is a searchable log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (k *logBuffer) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(b)
}

// line waits for a line with a word and returns it.
func (k *logBuffer) line(t *testing.T, word string) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); <-tick.C {
		k.mu.Lock()
		text := k.text.String()
		k.mu.Unlock()
		for line := range strings.Lines(text) {
			if strings.Contains(line, word) {
				return line
			}
		}
	}
	t.Fatalf("no log line has %s", word)
	return ""
}

func newTLSServer(t *testing.T) *tlsServer {
	t.Helper()
	e := &tlsServer{t: t, dir: t.TempDir(), roots: x509.NewCertPool(), log: new(logBuffer)}
	hosts := e.authority("hosts")
	e.operators = e.authority("operators")
	e.server = e.issue(hosts, "host", time.Hour)
	data, err := os.ReadFile(hosts.CA)
	if err != nil || !e.roots.AppendCertsFromPEM(data) {
		t.Fatal(err)
	}
	return e
}

func (e *tlsServer) authority(name string) *zkserver.Authority {
	e.t.Helper()
	a, err := zkserver.NewAuthority(e.dir, name)
	if err != nil {
		e.t.Fatal(err)
	}
	return a
}

func (e *tlsServer) issue(by *zkserver.Authority, name string, lasts time.Duration) zkserver.Certificate {
	e.t.Helper()
	c, err := by.Issue(name, time.Now().Add(lasts))
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// write writes a web configuration with the host's certificate and additional text.
func (e *tlsServer) write(more string) string {
	e.t.Helper()
	path := filepath.Join(e.dir, "web.yml")
	text := "tls_server_config:\n  cert_file: host.crt\n  key_file: host.key\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return path
}

const operatorsGive = "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: operators.pem\n"

// serve serves the API with a web configuration.
func (e *tlsServer) serve(more string, clients int) (addr string) {
	e.t.Helper()
	web, err := ReadConfig(e.write(more))
	if err != nil {
		e.t.Fatal(err)
	}
	opt := optionsWithSubmit(e.t, accept)
	opt.Authenticator = NewAuthenticator(web, slog.New(slog.DiscardHandler))
	opt.Authenticator.SetTokens(tokensOf(e.t, "ann:"+annsToken))
	log := slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return listeningWith(e.t, Endpoint{Web: web, Log: log}, New(opt), clients)
}

func tokensOf(t *testing.T, lines ...string) Tokens {
	return *authenticatorOf(t, lines...).tokens.Load()
}

// httpClient returns a client with a certificate, or none.
func (e *tlsServer) httpClient(certs ...zkserver.Certificate) *http.Client {
	e.t.Helper()
	conf := &tls.Config{RootCAs: e.roots, ServerName: "127.0.0.1"}
	for _, c := range certs {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			e.t.Fatal(err)
		}
		// Send it no matter which CAs the server accepts.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	e.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// handshake presents a certificate that is refused, and returns the reason from the server's log: the alert may be lost with the
// connection.
func (e *tlsServer) handshake(addr string, cert zkserver.Certificate) string {
	e.t.Helper()
	raw := dial(e.t, addr)
	conn := tls.Client(raw, e.httpClient(cert).Transport.(*http.Transport).TLSClientConfig.Clone())
	if n, err := conn.Read(make([]byte, 1)); err == nil { // the server's alert comes after the handshake
		return fmt.Sprintf("%d bytes were read", n)
	}
	return e.log.line(e.t, "TLS handshake error from "+raw.LocalAddr().String())
}

// submit requests an election. It returns 0 and the reason if there is no connection.
func submit(c *http.Client, url, authorization string) (int, string) {
	req, _ := http.NewRequest("POST", url+"/v1/reelect", strings.NewReader("{}"))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", authorization)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestClientCertificatesMaySubmitRequests(t *testing.T) {
	e := newTLSServer(t)
	addr := e.serve(operatorsGive, 16)
	url := "https://" + addr
	foreign := e.authority("foreign")
	ann := e.issue(e.operators, "ann@dc1", time.Hour)
	for name, c := range map[string]struct {
		client *http.Client
		token  string
		code   int
		want   string
	}{
		"an operator":                    {e.httpClient(ann), "", 200, `"by":"ann@dc1"`},
		"nobody":                         {e.httpClient(), "", 401, "operator requests need a token"},
		"a token under TLS":              {e.httpClient(), "Bearer " + annsToken, 200, `"by":"ann"`},
		"an operator with a wrong token": {e.httpClient(ann), "Bearer wrong", 401, "this token is not in"},
		"the CA of the host is unknown":  {&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "", 0, "certificate signed by unknown authority"},
	} {
		if code, body := submit(c.client, url, c.token); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	for want, cert := range map[string]zkserver.Certificate{
		"certificate signed by unknown authority":              e.issue(foreign, "eve", time.Hour),
		"certificate has expired":                              e.issue(e.operators, "old", -time.Hour),
		"certificate signed by unknown authority, as the host": e.server,
	} {
		want, _, _ = strings.Cut(want, ",")
		if got := e.handshake(addr, cert); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if code, body := submit(newHTTPClient(), strings.Replace(url, "https", "http", 1), "Bearer "+annsToken); code != 400 {
		t.Errorf("in clear text: %d %s", code, body)
	}
	resp, err := e.httpClient(ann).Get(url + "/v1/whoami")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"name":"ann@dc1","how":"certificate","can_operate":true`) || resp.ProtoMajor != 2 {
		t.Errorf("%s %s", resp.Proto, body)
	}
}

// A connection may be older than the removal of the operator's certificate.
func TestCertificateIsVerifiedForEachRequest(t *testing.T) {
	e := newTLSServer(t)
	url := "https://" + e.serve(operatorsGive, 16)
	ann := e.httpClient(e.issue(e.operators, "ann", time.Hour))
	if code, body := submit(ann, url, ""); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for more, want := range map[string]string{
		strings.Replace(operatorsGive, "operators", "hosts", 1):       "unknown authority",
		"  client_auth_type: VerifyClientCertIfGiven\n":               "needs client_ca_file",
		operatorsGive + "  client_allowed_sans: [bob]\n":              "could not find allowed SANs",
		strings.Replace(operatorsGive, "operators", "nobody", 1):      "no such file",
		strings.Replace(operatorsGive, "operators.pem", "web.yml", 1): "contains no PEM certificate",
	} {
		e.write(more)
		if code, body := submit(ann, url, ""); code != 401 || !strings.Contains(body, "the certificate is not accepted: ") || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", more, code, body)
		}
	}
	e.write(operatorsGive + "  client_allowed_sans: [ann]\n")
	if code, body := submit(ann, url, ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

func TestReadWebConfig(t *testing.T) {
	e := newTLSServer(t)
	for more, want := range map[string]string{
		"  client_auth_type: VerifyClientCertIfGiven\n":               "client_auth_type VerifyClientCertIfGiven needs client_ca_file",
		"  client_auth_type: RequireAndVerifyClientCert\n":            "needs client_ca_file",
		strings.Replace(operatorsGive, "operators.pem", "web.yml", 1): "contains no PEM certificate",
		strings.Replace(operatorsGive, "operators", "nobody", 1):      "no such file",
		"  key_file: x\n": "key_file",
		"  cipher: x\n":   "cipher",
		"basic_auth_users: {prom: $2a$04$D6Q8cS2iVpha73ov0U0rXeMDEir7pjMEPqr6PL19NnUb1owNUgEES}\n": "basic_auth_users: passwords are not supported",
		"tls_server_confi: {}\n": "tls_server_confi",
		strings.Replace(operatorsGive, "VerifyClientCertIfGiven", "Please", 1): "Please",
	} {
		path := e.write(more)
		if _, err := ReadConfig(path); err == nil || !strings.HasPrefix(err.Error(), "http.web_config: "+path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := ReadConfig(filepath.Join(e.dir, "no")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("ReadConfig: error %v", err)
	}
	os.Remove(filepath.Join(e.dir, "host.key"))
	if _, err := ReadConfig(e.write("")); err == nil || !strings.Contains(err.Error(), "host.key") {
		t.Errorf("without a key: %v", err)
	}
	plain := filepath.Join(e.dir, "plain.yml")
	if err := os.WriteFile(plain, []byte("http_server_config: {http2: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if web, err := ReadConfig(plain); err != nil || web.TLSEnabled() {
		t.Errorf("without TLS: %v, secure %v", err, web.TLSEnabled())
	}
}

// The principal of a request over the unix socket is the user that the kernel reports.
func TestRequestsOverUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Endpoint{Addr: unixPrefix + path}.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	serving(t, Endpoint{}, l, New(optionsWithSubmit(t, accept)), 4)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	me := fmt.Sprintf(`"by":"%s@%s"`, userName(t), host)
	if code, body := submit(overSocket(path), "http://n1", ""); code != 200 || !strings.Contains(body, me) {
		t.Errorf("%d %s, want %s", code, body, me)
	}
	if code, body := submit(overSocket(path), "http://n1", "Bearer "+annsToken); code != 200 || !strings.Contains(body, `"by":"ann"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := submit(overSocket(path), "http://n1", "Bearer wrong"); code != 401 {
		t.Errorf("%d %s", code, body)
	}
}

func userName(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}
