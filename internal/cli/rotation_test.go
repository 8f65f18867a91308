package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// hosts are the hosts of a fleet, each with a directory in place of /etc/zkelectd. The commands of docs/security.md run there.
type hosts struct {
	f      *fleet
	ids    []string
	work   string // the commands' working directory, the same on all hosts
	server *zkserver.Server
}

func newHosts(t *testing.T, f *fleet, ids ...string) *hosts {
	t.Helper()
	h := &hosts{f: f, ids: ids, work: filepath.Join(f.dir, "work")}
	for _, dir := range append([]string{"work", "zookeeper"}, ids...) {
		mkdir(t, filepath.Join(f.dir, dir))
	}
	return h
}

// etc returns the directory that stands for /etc/zkelectd on a host.
func (h *hosts) etc(id string) string { return filepath.Join(h.f.dir, id) }

// dedent matches the indentation of a list.
var dedent = regexp.MustCompile(`(?m)^   `)

// steps runs the commands below a heading of docs/security.md, with other paths, user and unit.
func (h *hosts) steps(heading string) {
	t := h.f.t
	t.Helper()
	data, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n### "+heading+"\n")
	if text, _, _ = strings.Cut(text, "\n##"); !found {
		t.Fatalf("docs/security.md has no section %q", heading)
	}
	found = false
	for _, part := range strings.Split(text, "   ```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "   ```\n")
		block = dedent.ReplaceAllString(block, "")
		where, commands, _ := strings.Cut(block, "\n")
		switch where {
		case "# on one host":
			h.run(h.ids[0], commands)
		case "# on every host":
			for _, id := range h.ids {
				h.run(id, commands)
			}
		case "# on every ZooKeeper server":
			h.onServer(commands)
		default:
			t.Fatalf("where does this run?\n%s", block)
		}
		found = true
	}
	if !found {
		t.Fatalf("docs/security.md has no commands below %q", heading)
	}
}

func (h *hosts) run(id, commands string) {
	h.f.t.Helper()
	here := strings.NewReplacer("/etc/zkelectd.yaml", h.f.file(id), "/etc/zkelectd/", h.etc(id)+"/", "-o zkelectd ", "",
		"systemctl reload zkelectd", "zkelectd reload --config "+h.f.file(id))
	h.shell(here.Replace(commands))
}

func (h *hosts) onServer(commands string) {
	h.f.t.Helper()
	const restart = "systemctl restart zookeeper"
	before, _, found := strings.Cut(commands, restart)
	if !found {
		h.f.t.Fatalf("the server is not restarted: %s", commands)
	}
	h.shell(strings.ReplaceAll(before, "/etc/zookeeper/", filepath.Join(h.f.dir, "zookeeper")+"/"))
	if err := h.server.Restart(h.f.t.Context()); err != nil {
		h.f.t.Fatal(err)
	}
}

func (h *hosts) shell(script string) string {
	h.f.t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir, cmd.Env = h.work, append(os.Environ(), h.f.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.f.t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// asMember opens a session with the credentials of a host, since the group's tree may be closed to the test's own session.
func (h *hosts) asMember(id string) *zk.Session {
	t := h.f.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	s, err := zk.Open(ctx, zk.Options{
		Servers: h.f.servers, Timeout: time.Minute, Access: zk.Access{Auth: zk.AuthFile{Path: filepath.Join(h.etc(id), "zookeeper.auth")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	return s
}

// term identifies a leadership: the leader, and the transaction that created its current.
func (h *hosts) term(s *zk.Session) string {
	h.f.t.Helper()
	data, stat, err := s.Get(h.f.t.Context(), h.f.paths.Current(), false)
	if err != nil {
		h.f.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", stat.Created, data)
}

// checkUninterrupted checks that one child has worked all the time, without a pause of more than a second.
func (h *hosts) checkUninterrupted(since time.Duration) {
	t := h.f.t
	t.Helper()
	if all := h.f.checkInvariants(); len(all) != 1 {
		t.Errorf("%d children have worked, want one: %+v", len(all), all)
	}
	last := since
	for line := range strings.Lines(read(h.f.ledgerFile())) {
		var at time.Duration
		if _, err := fmt.Sscan(line, &at); err != nil {
			t.Fatal(err)
		}
		if at > since && at-last > time.Second {
			t.Errorf("no child worked for %s", at-last)
		}
		last = max(last, at)
	}
	if idle := boottime.Now() - last; idle > time.Second {
		t.Errorf("no child worked for %s", idle)
	}
}

// The commands of docs/security.md take a group from open to private, and from one password to another, while a leader works
// all the time. Afterwards the old password is useless, and the group still elects.
func TestDocumentedRotations(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := newHosts(t, f, "a", "b", "c")
	f.joinWith(fmt.Sprintf("zookeeper: {session_timeout: 20s, session_file: %s/session}\n", h.etc("NODE")), h.ids...)
	f.waitForChild("a", 1)
	began, before := boottime.Now(), h.term(f.session)
	for _, id := range h.ids {
		f.logged(id, "open to unauthorized clients")
	}
	f.succeedsWith("\nOpen     anyone who can reach ZooKeeper", "status")

	h.steps("From open to private")
	h.checkNoAccess(f.session)
	for _, id := range h.ids {
		f.logged(id, "closed to unauthorized clients")
	}
	if kept := read(filepath.Join(h.etc("a"), "session")); !strings.Contains(kept, filepath.Join(h.etc("a"), "zookeeper.auth")) {
		t.Errorf("the session file does not have the credentials: %s", kept)
	}
	old := filepath.Join(f.dir, "old")
	h.shell("cp -p " + filepath.Join(h.etc("a"), "zookeeper.auth") + " " + old)
	if out := h.shell("zkelectd status --config " + f.file("a")); strings.Contains(out, "\nOpen") || !strings.Contains(out, "Leader   a") {
		t.Errorf("status: %s", out)
	}

	h.steps("A new password or user")
	insider := h.asMember("a")
	if after := h.term(insider); after != before {
		t.Errorf("leadership has changed: %s\n%s", before, after)
	}
	h.checkUninterrupted(began)
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + old}
	f.failsWith("has no permission", "status")
	f.env = nil

	for _, id := range []string{"b", "c"} {
		restartDaemon(t, f, id)
	}
	f.session.Close(t.Context())
	f.session = insider
	f.until("all are there with the new password", func(g status.Group) bool { return len(g.Members) == 3 && leads("a")(g) && !g.OpenTree })
	f.stop("a")
	f.until("b leads", leads("b"))
	f.checkInvariants()
}

// restartDaemon kills a daemon. The next one starts a session with the current files.
func restartDaemon(t *testing.T, f *fleet, id string) {
	t.Helper()
	pid := f.daemon(id)
	syscall.Kill(pid, syscall.SIGKILL)
	f.eventually("another daemon of "+id, func() bool { return f.daemon(id) != pid })
}

// checkNoAccess checks that an unauthorized session can read no znode of the group.
func (h *hosts) checkNoAccess(unauthorized *zk.Session) {
	t, p := h.f.t, h.f.paths
	t.Helper()
	all, err := h.asMember("a").ACLs(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range all {
		if _, _, err := unauthorized.Get(t.Context(), z.Path, false); err == nil || strings.Contains(z.ACL, "world") {
			t.Errorf("an unauthorized client may read %s: %s", z.Path, z.ACL)
		}
	}
	if !slices.ContainsFunc(all, func(z zk.ZnodeACL) bool { return z.Path == p.Current() }) || len(all) < 13 {
		t.Errorf("these are not all znodes: %+v", all)
	}
}

// pki has the certificates before and after a rotation.
type pki struct {
	oldCA, newCA                           *zkserver.Authority
	oldServer, oldHost, newServer, newHost zkserver.Certificate
}

func newPKI(t *testing.T) (p pki) {
	t.Helper()
	dir := t.TempDir()
	p.oldCA, p.newCA = authority(t, dir, "old-ca"), authority(t, dir, "new-ca")
	p.oldServer, p.oldHost = issue(t, p.oldCA, "zk-old"), issue(t, p.oldCA, "host-old")
	p.newServer, p.newHost = issue(t, p.newCA, "zk-new"), issue(t, p.newCA, "host-new")
	return p
}

// authority returns an authority that has its files in a directory.
func authority(t *testing.T, dir, name string) *zkserver.Authority {
	t.Helper()
	ca, err := zkserver.NewAuthority(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue returns a certificate that is valid for an hour.
func issue(t *testing.T, ca *zkserver.Authority, name string) zkserver.Certificate {
	t.Helper()
	c, err := ca.Issue(name, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// install puts the old certificates where server and hosts read them, and the new ones where the commands read them.
func (p pki) install(h *hosts, server string) {
	t := h.f.t
	t.Helper()
	if err := os.Remove(filepath.Join(h.f.dir, "zookeeper")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(server, filepath.Join(h.f.dir, "zookeeper")); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{
		"new-ca.pem": p.newCA.CA, "new-server.pem": p.newServer.Chain, "new-host.crt": p.newHost.Cert, "new-host.key": p.newHost.Key,
	} {
		copyFile(t, from, filepath.Join(h.work, name))
	}
	for _, id := range h.ids {
		for name, from := range map[string]string{"ca.pem": p.oldCA.CA, "host.crt": p.oldHost.Cert, "host.key": p.oldHost.Key} {
			copyFile(t, from, filepath.Join(h.etc(id), name))
		}
	}
}

// The commands of docs/security.md replace the certificates and the CA of ZooKeeper, with restarts of the server, while a leader
// works all the time.
func TestDocumentedRotationOfTLS(t *testing.T) {
	t.Parallel()
	p, at := newPKI(t), t.TempDir()
	copyFile(t, p.oldServer.Chain, filepath.Join(at, "server.pem"))
	copyFile(t, p.oldCA.CA, filepath.Join(at, "ca.pem"))
	server := zkserver.ForTest(t, zkserver.Options{
		TLS: &zkserver.TLS{Chain: filepath.Join(at, "server.pem"), CA: filepath.Join(at, "ca.pem"), RequireClientCert: true},
	})
	f := newFleet(t, server.Addr()) // the test itself does not use TLS
	f.servers = []string{server.SecureAddr()}
	h := newHosts(t, f, "a", "b")
	h.server = server
	p.install(h, at)
	f.joinWith(fmt.Sprintf("zookeeper: {session_timeout: 120s, tls: {ca: %s/ca.pem, cert: %[1]s/host.crt, key: %[1]s/host.key}}\n", h.etc("NODE")), h.ids...)
	f.waitForChild("a", 1)
	began, before := boottime.Now(), h.term(f.session)

	h.steps("TLS certificate and CA of ZooKeeper")
	if after := h.term(f.session); after != before {
		t.Errorf("leadership has changed: %s\n%s", before, after)
	}
	h.checkUninterrupted(began)
	// The old certificates are useless, and the group elects with the new ones.
	f.env = []string{"ZKELECTD_ZOOKEEPER_TLS_CA=" + p.newCA.CA, "ZKELECTD_ZOOKEEPER_CONNECT_TIMEOUT=2s",
		"ZKELECTD_ZOOKEEPER_TLS_CERT=" + p.oldHost.Cert, "ZKELECTD_ZOOKEEPER_TLS_KEY=" + p.oldHost.Key}
	f.failsWith("the server rejected the connection", "status")
	f.env = nil
	f.stop("a")
	f.until("b leads", leads("b"))
	f.checkInvariants()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The commands of docs/security.md replace the tokens and the certificate of the HTTP API while the leader works.
func TestDocumentedRotationOfTokens(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := newHosts(t, f, "a")
	ca := authority(t, f.dir, "ca")
	renew := func(name string) {
		c := issue(t, ca, name)
		copyFile(t, c.Key, filepath.Join(h.etc("a"), "http.key"))
		copyFile(t, c.Cert, filepath.Join(h.etc("a"), "http.crt"))
	}
	renew("first")
	tokens, web := filepath.Join(h.etc("a"), "http.tokens"), filepath.Join(h.etc("a"), "web.yml")
	for path, text := range map[string]string{
		tokens: "night-shift:" + nightsToken + "\n", web: "tls_server_config: {cert_file: http.crt, key_file: http.key}\n",
	} {
		put(t, path, text)
	}
	f.startLeader("a", fmt.Sprintf("http: {listen: '127.0.0.1:0', token_file: %s, web_config: %s}\n", tokens, web))
	f.waitForChild("a", 1)
	began, before := boottime.Now(), h.term(f.session)
	var served string
	submit := func(token string) int {
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			served = s.PeerCertificates[0].Subject.CommonName
			return nil
		}}}
		code, _ := post(&http.Client{Transport: transport}, "https://"+f.address("a")+"/v1/cordon", token, `{"node":"nobody","reason":"a test"}`)
		return code
	}
	refused := submit("x" + nightsToken)
	if allowed := submit(nightsToken); refused != http.StatusUnauthorized || allowed == refused || served != "first" {
		t.Fatalf("a wrong token: %d, the right one: %d, by %s", refused, allowed, served)
	}
	renew("second")
	h.steps("HTTP tokens")
	_, added, found := strings.Cut(read(tokens), "night-shift-2:")
	if !found || strings.Contains(read(tokens), nightsToken) {
		t.Fatalf("the file holds %q", read(tokens))
	}
	old, now := submit(nightsToken), submit(strings.TrimSpace(added))
	if old != http.StatusUnauthorized || now == http.StatusUnauthorized || served != "second" {
		t.Errorf("the old token: %d, the new one: %d, by %s", old, now, served)
	}
	f.succeedsWith(`"api": "https://127.0.0.1:0"`, "status", "-o", "json")
	f.checkSecret(nightsToken, f.daemon("a"))
	if after := h.term(f.session); after != before {
		t.Errorf("leadership has changed: %s\n%s", before, after)
	}
	h.checkUninterrupted(began)
}
