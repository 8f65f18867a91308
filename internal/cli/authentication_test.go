package cli

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/kdc"
	"zkelectd/internal/test/zkserver"
)

// recipe is one of docs/security.md: a way to authenticate. Its paths and addresses are those of the test.
type recipe struct {
	t      *testing.T
	dir    string
	secure int // the port for TLS
	blocks map[string]string
	server *zkserver.Server
}

var block = regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```\n")

// newRecipe reads the recipe with a title.
func newRecipe(t *testing.T, title string) *recipe {
	t.Helper()
	_, text, found := strings.Cut(read("../../docs/security.md"), "\n### "+title+"\n")
	if !found {
		t.Fatalf("there is no recipe %q", title)
	}
	text, _, _ = strings.Cut(text, "\n### ")
	r := &recipe{t: t, dir: t.TempDir(), secure: freePorts(t, 1)[0], blocks: make(map[string]string)}
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		r.blocks[m[1]] = strings.ReplaceAll(m[2], "/etc/zookeeper/", r.dir+"/")
	}
	return r
}

// serve starts the server of the recipe.
func (r *recipe) serve(java ...string) {
	r.t.Helper()
	opt := zkserver.Options{Tick: 100 * time.Millisecond, Java: java}
	if text := r.blocks["properties"]; text != "" {
		text = strings.ReplaceAll(text, "secureClientPort=2281", fmt.Sprintf("secureClientPort=%d", r.secure))
		opt.ExtraConfig = strings.Split(text, "\n")
	}
	if text := r.blocks["jaas"]; text != "" {
		file := filepath.Join(r.dir, "jaas.conf")
		put(r.t, file, strings.ReplaceAll(text, "zk1.example.com", "localhost"))
		opt.Java = append(opt.Java, "-Djava.security.auth.login.config="+file)
	}
	r.server = zkserver.ForTest(r.t, opt)
}

// host writes the configuration of a host. Its files are in a directory of its own. more replaces parts of the text.
func (r *recipe) host(f *fleet, id string, more ...string) (etc string) {
	r.t.Helper()
	etc = filepath.Join(r.dir, id)
	if err := os.MkdirAll(etc, 0o700); err != nil {
		r.t.Fatal(err)
	}
	_, port, _ := strings.Cut(r.server.Addr(), ":")
	here := strings.NewReplacer(append([]string{"zk1.example.com:2181", "localhost:" + port, "zk1.example.com:2281", fmt.Sprintf("127.0.0.1:%d", r.secure),
		"/etc/zkelectd/", etc + "/"}, more...)...)
	put(r.t, f.file(id), here.Replace(r.blocks["yaml"])+fmt.Sprintf(`
  session_timeout: 4s
node: {id: %s, site: dc1}
http: {listen: 'unix:%s/api'}
child: {command: [ledger-child], env: {LEDGER: %s}, stop_timeout: 400ms}
`, id, etc, f.ledgerFile()))
	return etc
}

// run runs the commands that follow the recipes, and two daemons. It returns what acl shows. Then the guard closes
// the session of a dead daemon.
func (r *recipe) run(f *fleet) (acl string) {
	r.t.Helper()
	steps := blocks(r.t, "../../docs/security.md", "ZooKeeper")[0]
	for i, id := range []string{"host1", "host2"} {
		here := strings.NewReplacer("/etc/zkelectd.yaml", f.file(id))
		for line := range strings.Lines(steps) {
			if i > 0 && strings.Contains(line, "on one host") {
				continue
			}
			if out, err := exec.CommandContext(r.t.Context(), "sh", "-euc", here.Replace(line)).CombinedOutput(); err != nil {
				r.t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
		f.startCommand(id, exec.Command("zkelectd", "run", "--config", f.file(id)))
	}
	shown := func(command, want string) string {
		var out string
		f.eventually(command+" shows "+want, func() bool {
			ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
			defer cancel()
			text, err := exec.CommandContext(ctx, "zkelectd", command, "--config", f.file("host1")).CombinedOutput()
			out = string(text)
			return err == nil && strings.Contains(out, want)
		}, func() string { return out })
		return out
	}
	shown("status", "elected next if")
	acl = shown("acl", "host2 ")
	if strings.Contains(acl, "differs") || strings.Contains(acl, "locked out") || strings.Contains(acl, "world:anyone") {
		r.t.Errorf("the tree is not protected:\n%s", acl)
	}
	leader := "host1"
	if strings.Contains(f.daemons["host2"].Output(), "now leading") {
		leader = "host2"
	}
	syscall.Kill(f.daemon(leader), syscall.SIGKILL)
	f.logged(leader, "closed the dead daemon's session")
	shown("status", "elected next if")
	return acl
}

func TestAuthenticationRecipes(t *testing.T) {
	t.Parallel()
	hosts := []string{"host1", "host2"}
	for title, c := range map[string]struct{ file, acl string }{
		"A password":           {"zookeeper.auth", "digest:zkelectd/"},
		"SASL with a password": {"sasl.auth", "sasl:zkelectd:cdrwa"},
	} {
		t.Run(title, func(t *testing.T) {
			f, r := newFleet(t), newRecipe(t, title)
			r.serve()
			for _, id := range hosts {
				put(t, filepath.Join(r.host(f, id), c.file), "zkelectd:secret\n")
			}
			if acl := r.run(f); !strings.Contains(acl, c.acl) {
				t.Error(acl)
			}
		})
	}
	t.Run("A client certificate", func(t *testing.T) {
		f, r := newFleet(t), newRecipe(t, "A client certificate")
		ca := authority(t, r.dir, "ca")
		issue := func(name string) zkserver.Certificate {
			c, err := ca.IssueTo(pkix.Name{CommonName: name, Organization: []string{"Example"}}, name, time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		copyFile(t, issue("server").Chain, filepath.Join(r.dir, "server.pem"))
		r.serve()
		for _, id := range hosts {
			c, etc := issue(id), r.host(f, id)
			copyFile(t, c.Cert, filepath.Join(etc, "host.crt"))
			copyFile(t, c.Key, filepath.Join(etc, "host.key"))
			copyFile(t, ca.CA, filepath.Join(etc, "ca.pem"))
		}
		out, err := exec.Command("openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", filepath.Join(r.dir, "host1", "host.crt")).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "subject=CN=host1,O=Example" {
			t.Errorf("the subject: %v %s", err, out)
		}
		if acl := r.run(f); !strings.Contains(acl, "x509:CN=host1,O=Example:cdrwa,x509:CN=host2,O=Example:cdrwa") {
			t.Error(acl)
		}
	})
	kerberos := func(t *testing.T, drop string) (*fleet, *recipe) {
		f, r := newFleet(t), newRecipe(t, "Kerberos")
		r.blocks["properties"] = strings.ReplaceAll(r.blocks["properties"], drop, "")
		k, err := kdc.Start(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Stop)
		script := strings.ReplaceAll(r.blocks["sh"], "zk1.example.com", "localhost")
		admin := func(script string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
			cmd.Dir, cmd.Env = r.dir, k.Env()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		admin(script)
		r.serve("-Djava.security.krb5.conf=" + k.Conf)
		_, own, _ := strings.Cut(script, "\nkadmin.local addprinc -randkey zkelectd/")
		for i, id := range hosts {
			etc := r.host(f, id, "sasl: {", "sasl: {krb5_conf: "+k.Conf+", ")
			if i > 0 {
				admin("rm zkelectd.keytab\nkadmin.local addprinc -randkey zkelectd/" + strings.ReplaceAll(own, "host1", id))
			}
			copyFile(t, filepath.Join(r.dir, "zkelectd.keytab"), filepath.Join(etc, "zkelectd.keytab"))
		}
		return f, r
	}
	t.Run("Kerberos", func(t *testing.T) {
		f, r := kerberos(t, "")
		if acl := r.run(f); !strings.Contains(acl, "sasl:zkelectd@"+kdc.Realm+":cdrwa") {
			t.Error(acl)
		}
	})
	// Only the servers' setting makes the hosts one user. Without it the first host does not let the others in.
	t.Run("Kerberos of hosts", func(t *testing.T) {
		f, _ := kerberos(t, "kerberos.removeHostFromPrincipal=true")
		command := func(id, want string, args ...string) {
			t.Helper()
			out, err := exec.CommandContext(t.Context(), "zkelectd", append(args, "--config", f.file(id))...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s %v: %v\n%s", id, args, err, out)
			}
		}
		command("host1", "only sasl:zkelectd/host1.example.com@"+kdc.Realm+" has access to it", "init")
		command("host2", "could not take part: ", "check")
		for _, id := range hosts {
			text, err := os.ReadFile(f.file(id))
			if err != nil {
				t.Fatal(err)
			}
			put(t, f.file(id), strings.Replace(string(text), "  acl:", fmt.Sprintf("  identities: [%q, %q]\n  acl:",
				"sasl:zkelectd/host1.example.com@"+kdc.Realm, "sasl:zkelectd/host2.example.com@"+kdc.Realm), 1))
		}
		command("host1", "znodes now have sasl:zkelectd/host1", "acl", "--apply")
		for _, id := range hosts {
			f.startCommand(id, exec.Command("zkelectd", "run", "--config", f.file(id)))
			f.logged(id, "registered")
		}
		f.eventually("both take part", func() bool {
			out, err := exec.CommandContext(t.Context(), "zkelectd", "status", "--config", f.file("host2")).CombinedOutput()
			return err == nil && strings.Contains(string(out), "elected next if")
		}, func() string { return f.daemons["host2"].Output() })
	})
}
