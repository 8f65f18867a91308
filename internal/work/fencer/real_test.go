package fencer

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var realAgents = flag.Bool("fencer.real", false, "test with the fence agents of ClusterLabs in /usr/sbin")

// TestRealAgents fences by fence_dummy, which keeps the state of its node in a file, and asks each agent that is installed about
// itself. It does nothing without -fencer.real: the agents and their dependencies are large.
func TestRealAgents(t *testing.T) {
	if !*realAgents {
		return
	}
	state := filepath.Join(t.TempDir(), "state")
	c := Config{Timeout: time.Minute, Levels: []Level{{
		Setting: "fencing", Agent: "fence_dummy", Nodes: map[string]map[string]string{"n1": {"type": "file", "status_file": state}},
	}}}
	if errs := c.Check(t.Context(), false, Run); len(errs) > 0 {
		t.Errorf("%v", errs)
	}
	if err := c.Monitor(t.Context(), "n1", Run); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(state, []byte("on"), 0o600); err != nil {
		t.Fatal(err)
	}
	by, err := c.FenceNode(t.Context(), target, Run)
	if err != nil || by != "fence_dummy" || strings.TrimSpace(read(t, state)) != "off" {
		t.Errorf("%s, %v, %q", by, err, read(t, state))
	}
	c.Levels[0].Nodes["n1"]["type"] = "fail" // off fails, and so does every other action
	if _, err := c.FenceNode(t.Context(), target, Run); err == nil {
		t.Error("a failure counts as success")
	}
	c.Levels[0].Nodes["n1"] = map[string]string{"status_fil": state}
	if errs := c.Check(t.Context(), false, Run); len(errs) != 1 || !strings.Contains(errs[0].Error(), "did you mean status_file?") {
		t.Errorf("%v", errs)
	}
	agents, err := filepath.Glob("/usr/sbin/fence_*")
	if err != nil || len(agents) < 20 {
		t.Fatalf("%d agents: %v", len(agents), err)
	}
	understood := 0
	for _, path := range agents {
		l := Level{Setting: "fencing", Agent: path}
		m, err := l.metadata(t.Context(), Run)
		switch {
		case err != nil:
			t.Logf("%s: %v", filepath.Base(path), err)
		case !m.has("off"):
			t.Logf("%s has no action off", filepath.Base(path))
		default:
			understood++
		}
		if err == nil && !m.has("reboot") {
			t.Logf("%s has no action reboot", filepath.Base(path))
		}
	}
	if t.Logf("%d of %d agents can be used", understood, len(agents)); understood < len(agents)*3/4 {
		t.Error("too few agents")
	}
}
