package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

// A standby whose child could not be started says so in its log and in status, long before it takes over. The problem ends when the
// program exists, and a reload checks again at once.
func TestStandbyWithoutItsChild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "")
	app := filepath.Join(f.dir, "app")
	f.configure("b", "dc1", 90, fmt.Sprintf("child: {command: [%s], stop_timeout: 1s}\n", app))
	f.start("b")
	problem := "b is not ready to lead: child.command: " + app + " does not exist"
	named := func(g status.Group) bool { return strings.Contains(strings.Join(g.Problems, "\n"), problem) }
	f.until("status names the missing program", func(g status.Group) bool { return len(g.Members) == 2 && named(g) })
	f.logged("b", "this host is not ready to lead")
	if err := os.WriteFile(app, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.reload("b")
	f.until("the problem is over", func(g status.Group) bool { return len(g.Members) == 2 && !named(g) })
	if err := os.Remove(app); err != nil {
		t.Fatal(err)
	}
	f.until("it is noticed without a reload", named)
	f.checkInvariants()
}

// The child and the hooks run in this order, and learn why the term began, and how the last one ended. All hooks get the child's
// environment.
func TestHooksAndWorkKnowTheLastTerm(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "")
	out := filepath.Join(f.dir, "out")
	note := func(name, file string) string {
		return fmt.Sprintf("echo %s $CLUSTER $ZKELECTD_CAUSE,$ZKELECTD_PREVIOUS_LEADER,$ZKELECTD_PREVIOUS_CLEAN,$ZKELECTD_TERM >>%s", name, file)
	}
	f.configure("b", "dc1", 90, fmt.Sprintf(`hooks:
  pre_start: [sh, -c, "%s"]
  post_stop: [sh, -c, "%s"]
  on_change: [sh, -c, "%s; cat >>%s.json"]
child:
  command: [sh, -c, "trap '%s; exit 0' TERM; %s; while :; do sleep 0.05; done"]
  env: {CLUSTER: east}
  stop_timeout: 1s
  max_restarts: 0
`, note("pre", out), note("post", out), note("change", out+".changes"), out, note("end", out), note("child", out)))
	f.start("b")
	f.until("b is a standby", func(g status.Group) bool { return len(g.Members) == 2 })
	f.stop("a")
	term := f.until("b leads", leads("b")).Term
	f.eventually("its child has begun", func() bool { return strings.Contains(read(out), "child") })
	f.stop("b")
	want := ""
	for _, name := range []string{"pre", "child", "end", "post"} {
		want += fmt.Sprintf("%s east stopped,a,true,%d\n", name, term)
	}
	if got := read(out); got != want {
		t.Errorf("they ran as\n%s", got)
	}
	if got := read(out + ".changes"); !strings.Contains(got, "change east ,,,") {
		t.Errorf("on_change ran as\n%s", got)
	}
	var states []string
	for line := range strings.Lines(read(out + ".json")) {
		_, rest, _ := strings.Cut(line, `"state":"`)
		state, _, _ := strings.Cut(rest, `"`)
		states = append(states, state)
	}
	if got := strings.Join(states, " "); !strings.HasSuffix(got, "preparing leading standby") {
		t.Errorf("on_change saw %q", got)
	}
}
