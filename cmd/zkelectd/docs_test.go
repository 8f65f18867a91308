package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/status"
)

// blocks are the shell commands of a section of a document.
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

// What docs/getting-started.md says works, word by word. Its section on systemd is tried by scripts/test-systemd.sh.
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
		// The shell becomes the last command, as one's own does not.
		lines := strings.Split(sidecars[i], "\n")
		lines[len(lines)-1] = "exec " + lines[len(lines)-1]
		f.startCommand(id, exec.Command("sh", "-euc", here.Replace(strings.Join(lines, "\n"))))
		f.until(id+" is there", func(g status.Group) bool { return len(g.Members) == i+1 && leads("n1")(g) })
	}
	for _, block := range blocks(t, document, "Look") {
		cmd := exec.Command("sh", "-euc", here.Replace(block))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "n2 (default) leads in term") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	for _, id := range []string{"n1", "n2"} {
		f.daemons[id].signal(syscall.SIGTERM)
		if code := f.exit(id); code != 0 {
			t.Errorf("%s ends with status %d", id, code)
		}
	}
}
