package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

// blocks returns the shell commands in a section of a document.
func blocks(t *testing.T, file, section string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", file, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var all []string
	for {
		_, rest, ok := strings.Cut(text, "```sh\n")
		if !ok {
			return all
		}
		var block string
		block, text, _ = strings.Cut(rest, "\n```\n")
		all = append(all, block)
	}
}

// The commands in docs/getting-started.md work as they are written. scripts/test-systemd.sh tests its section on systemd.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	const document = "../../docs/getting-started.md"
	f := newFleet(t)
	here := strings.NewReplacer("zk1:2181", f.servers[0], "/cluster", f.paths.Root)
	sidecars := blocks(t, document, "As a sidecar")
	if len(sidecars) != 2 {
		t.Fatalf("%d ways of a sidecar", len(sidecars))
	}
	for i, id := range []string{"n1", "n2"} {
		// The shell becomes the last command, unlike an interactive one.
		lines := strings.Split(sidecars[i], "\n")
		lines[len(lines)-1] = "exec " + lines[len(lines)-1]
		f.startCommand(id, exec.Command("sh", "-euc", here.Replace(strings.Join(lines, "\n"))))
		f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+1 && leads("n1")(g) })
	}
	for _, block := range blocks(t, document, "Look at the group") {
		cmd := exec.Command("sh", "-euc", here.Replace(block))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "n2 (default) leads in term") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	for _, id := range []string{"n1", "n2"} {
		f.stop(id)
	}
}

// The examples of operator requests in docs/http-api.md are correct.
func TestDocumentedRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tokens := f.tokens("night-shift:" + nightsToken)
	for id, site := range map[string]string{"n1": "dc1", "n2": "dc1", "n3": "dc2"} {
		listen, priority := "127.0.0.1:0", 100
		if id == "n2" {
			listen, priority = "unix:"+f.socket(id), 1
		}
		f.configure(id, site, priority, "http: {listen: '"+listen+"', "+tokens+"}\npolicy: {sites: {dc1: 200, dc2: 100}}\n")
		f.start(id)
	}
	f.until("n1 leads", func(g status.Group) bool { return len(g.Members) == 3 && leads("n1")(g) })
	data, err := os.ReadFile("../../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n## Who may submit operator requests\n")
	_, text, _ = strings.Cut(text, "\n```\n$ ")
	text, _, _ = strings.Cut(text, "\n```\n")
	shown := strings.Split(strings.ReplaceAll(text, "\\\n", ""), "\n$ ")
	if len(shown) != 3 {
		t.Fatalf("%d commands", len(shown))
	}
	here := strings.NewReplacer("n1:7980", f.address("n1"), "/run/zkelectd/api.sock", f.socket("n2"))
	// Users, times and the group differ in the example.
	own := regexp.MustCompile(`"(group)":"[^"]+"|"(term)":\d+|"(age)":"[^"]+"|"(state)":"[a-z]+"|"(by)":"[a-z]+@[^"]+"`)
	for _, s := range shown {
		script, want, _ := strings.Cut(s, "\n")
		cmd := exec.Command("sh", "-euc", here.Replace(script))
		cmd.Env = append(os.Environ(), "TOKEN="+nightsToken)
		out, err := cmd.CombinedOutput()
		if err != nil || own.ReplaceAllString(strings.TrimSpace(string(out)), "$1$2$3$4$5") != own.ReplaceAllString(want, "$1$2$3$4$5") {
			t.Errorf("%s: %v\n%s\nnot\n%s", script, err, out, want)
		}
	}
	f.eventually("the user of the socket is named", func() bool {
		c := f.snapshot().Control.Record.Cordons
		return len(c) == 1 && strings.HasSuffix(c[0].By, "@"+host)
	})
	f.until("n3 leads", leads("n3"))
}
