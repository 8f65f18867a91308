package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"zkelectd/internal/operator/status"
)

// The commands in docs/operations.md work one after another, on a group as described there. scripts/test-systemd.sh and
// scripts/test-package.sh test those of systemd and the package manager.
func TestOperations(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"n1", "n2", "n3"} {
		f.configure(id, []string{"dc1", "dc1", "dc2"}[i], 100-i, fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until("all have joined", func(g status.Group) bool { return len(g.Members) == 3 && leads("n1")(g) })
	policy := fmt.Sprintf("node: {id: n1}\nzookeeper: {servers: [%s], root: %s}\npolicy: {sites: {dc1: 200, dc2: 100, dc3: 50}}\n", f.servers[0], f.paths.Root)
	put(t, filepath.Join(f.dir, "new.yaml"), policy)
	alerts, err := filepath.Abs("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("/etc/zkelectd.yaml", f.file("n1"),
		"/usr/share/zkelectd/prometheus/alerts.yml", alerts, "/etc/prometheus/", f.dir+"/")
	run := 0
	for _, s := range commandsIn(read("../../docs/operations.md")) {
		if s.inline {
			continue
		}
		file, err := syntax.NewParser().Parse(strings.NewReader(s.script), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range file.Stmts {
			call, ok := statement.Cmd.(*syntax.CallExpr)
			if !ok || (unquoted(call.Args[0]) != "zkelectd" && unquoted(call.Args[0]) != "sed") {
				continue
			}
			var b strings.Builder
			if err := syntax.NewPrinter().Print(&b, statement); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-euc", here.Replace(b.String()))
			cmd.Dir = f.dir
			cmd.Env = append(os.Environ(), "HOME="+f.dir, "ZKELECTD_ZOOKEEPER_SERVERS="+f.servers[0], "ZKELECTD_ZOOKEEPER_ROOT="+f.paths.Root, "ZKELECTD_HTTP_LISTEN=unix:"+f.socket("n1"))
			out, err := cmd.CombinedOutput()
			if strings.Contains(b.String(), "--dry-run") && cmd.ProcessState.ExitCode() == statusNo {
				err = nil // it would change something
			}
			if err != nil {
				t.Errorf("docs/operations.md:%d: %s: %v\n%s", s.line, b.String(), err, out)
			}
			run++
		}
	}
	if run < 14 {
		t.Errorf("only %d commands were run", run)
	}
	if installed := read(filepath.Join(f.dir, "zkelectd.yml")); !strings.Contains(installed, "runbook_url: https://wiki.example.org/zkelectd/docs/operations.md#zkelectdnoleader") {
		t.Errorf("the runbooks are not where they are served: %.200s", installed)
	}
	f.until("n1 leads again", leads("n1"))
	f.checkInvariants()
}
