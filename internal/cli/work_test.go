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

// The child and the hooks learn why the term began, and how the last one ended. All hooks get the child's environment.
func TestWorkKnowsTheLastTerm(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "")
	out := filepath.Join(f.dir, "out")
	hook := func(name string) string {
		return fmt.Sprintf(`[sh, -c, "echo %s $CLUSTER $ZKELECTD_CAUSE,$ZKELECTD_PREVIOUS_LEADER,$ZKELECTD_PREVIOUS_CLEAN >>%s"]`, name, out)
	}
	f.configure("b", "dc1", 90, fmt.Sprintf("hooks: {pre_start: %s, post_stop: %s, on_change: %s}\nchild: {command: %s, env: {CLUSTER: east}, stop_timeout: 1s, max_restarts: 0}\n",
		hook("pre"), hook("post"), hook("change"), strings.Replace(hook("child"), `"]`, `; exec sleep 1000"]`, 1)))
	f.start("b")
	f.until("b is a standby", func(g status.Group) bool { return len(g.Members) == 2 })
	f.stop("a")
	f.until("b leads", leads("b"))
	f.stop("b")
	got := read(out)
	for _, want := range []string{"pre east stopped,a,true\n", "child east stopped,a,true\n", "post east stopped,a,true\n", "change east ,,\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
