package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/losses"
	"zkelectd/internal/status"
)

// zkelectd check and the log at start name the losses that the configuration does not survive. A single member does not survive the loss of
// its host.
func TestCheckSaysWhatALossCosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	survived := func(want string) {
		t.Helper()
		out, err := f.runAs("a", "check", "-o", "json")
		var c checkedConfig
		_, after, _ := strings.Cut(out, "{") // warnings come before
		if jsonErr := json.NewDecoder(strings.NewReader("{" + after)).Decode(&c); err != nil || jsonErr != nil || len(c.Groups) != 1 {
			t.Fatalf("%v, %v: %s", err, jsonErr, out)
		}
		var kinds []string
		for _, l := range c.Groups[0].Losses {
			if l.Survived() {
				kinds = append(kinds, string(l.Kind))
			}
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("survived: %s, want %s", got, want)
		}
	}
	f.configure("a", "dc1", 100, "")
	survived("daemon host partition") // nothing is known of a group without members
	f.start("a")
	f.until("a leads", leads("a"))
	survived("daemon")
	f.configure("b", "dc1", 50, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	survived("daemon host partition")
	if log := read(f.daemons["a"].log); !strings.Contains(log, "time from a loss until the next leader may start its work") || !strings.Contains(log, "host=8.45s") {
		t.Errorf("the log: %s", log)
	}
	f.failsWith("-o yaml: must be table or json", "check", "-o", "yaml")
}

// The lines in docs/day.md are what check prints with the default settings, as comments of YAML.
func TestTheDocumentedCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "zkelectd.yaml")
	if err := os.WriteFile(file, []byte("zookeeper: {servers: [zk1], root: /app}\nnode: {id: a}\nchild: {command: [app]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := exec.Command("zkelectd", "check", "--offline", "--config", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	out := string(data)
	lines := strings.Split(strings.TrimSpace(out[strings.LastIndex(out, "\n\n"):]), "\n")
	if len(lines) != 2+len(losses.Table(losses.Config{})) || slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "# ") }) {
		t.Fatalf("check prints\n%s", out)
	}
	if want := fmt.Sprintf("```\n%s\n```\n", strings.Join(lines[2:], "\n")); !strings.Contains(read("../../docs/day.md"), want) {
		t.Errorf("docs/day.md lacks\n%s", want)
	}
}
