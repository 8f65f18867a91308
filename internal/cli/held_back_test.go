package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// hint returns a hint as it is shown for the group.
func (f *fleet) hint(command string) string { return cluster.InGroup(command, f.groupName()) }

// typedFor returns the text of a status with the flags of [fleet.run] in its hints.
func (f *fleet) typedFor(text string) string {
	return withConnection(text, []string{"status", "--zk", strings.Join(f.servers, ","), "--root", f.paths.Root})
}

func (f *fleet) groupName() string { return cluster.NameOf(f.paths.Root) }

// exits runs a command that must exit with a status, and returns its output.
func (f *fleet) exits(want int, args ...string) string {
	f.t.Helper()
	out, err := f.run(args...)
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		f.t.Fatal(err)
	}
	if code != want {
		f.t.Errorf("%v: exit status %d, want %d: %s", args, code, want, out)
	}
	return out
}

// exitsWith runs a command that must exit with a status and print a text.
func (f *fleet) exitsWith(code int, want string, args ...string) {
	f.t.Helper()
	if out := f.exits(code, args...); !strings.Contains(out, want) {
		f.t.Errorf("%v: %s, want %q", args, out, want)
	}
}

// policyFile writes a file with a policy, and returns its path.
func (f *fleet) policyFile(name, policy string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	put(f.t, file, policy)
	return file
}

// policy --apply, its forecast, status, explain and reload say what holds a better member back.
func TestWhatHoldsABetterMemberBackIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const policy = "policy: {failback: manual, sites: {dc1: 200, dc2: %d}}\n"
	for i, id := range []string{"b", "a"} {
		f.configure(id, []string{"dc1", "dc2"}[i], 100, fmt.Sprintf(policy, 100))
		f.start(id)
		f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+1 && leads("b")(g) })
	}
	manual := f.policyFile("manual.yaml", fmt.Sprintf(policy, 300))
	want := "a would be better than b (site dc2 has 300 against site dc1 has 200), but failback is manual; " +
		f.hint("'zkelectd reelect'") + " moves leadership now\n"
	for _, args := range [][]string{{"policy", "--apply", manual, "--dry-run"}, {"policy", "--apply", manual}, {"status"}, {"explain"}} {
		exit := 0
		if slices.Contains(args, "--dry-run") {
			exit = statusNo // it differs
		}
		said := want
		if args[0] == "status" {
			said = f.typedFor(want)
		}
		f.exitsWith(exit, said, args...)
	}
	mistyped := f.policyFile("mistyped.yaml", strings.Replace(fmt.Sprintf(policy, 300), "policy: {", `policy: {filter: ['member.id != "bb"'], `, 1))
	f.exitsWith(statusNo, `warning: policy.filter[0] names the node "bb", which is not a member`, "policy", "--apply", "--dry-run", mistyped)
	f.configure("b", "dc1", 100, fmt.Sprintf(policy, 300)) // what policy --apply has changed is a conflict otherwise
	f.reloads("b")
	f.configure("b", "dc1", 100, fmt.Sprintf(policy, 400))
	if out := f.reloads("b"); !strings.Contains(out, strings.Replace(want, "300", "400", 1)) {
		t.Errorf("reload: %s", out)
	}
	f.exits(0, "reelect", "--wait")
	f.until("a leads", leads("a"))
	f.checkInvariants()
}

// A group without a leader is no error, whatever else is wrong with it.
func TestNoLeaderIsNoError(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b", "c")
	f.exits(0, "leader")
	f.exits(0, "leader", "--is", "--id", "a")
	f.exits(1, "leader", "--is", "--id", "b")
	f.exits(0, "policy", "--apply", f.policyFile("other.yaml", "policy: {type: first}\n")) // no configuration has this one
	f.exits(0, "pause", "--hard", "--reason", "freeze")
	f.crash("a")
	f.until("nobody leads", func(g status.Group) bool {
		return g.State == status.StateNone && len(g.Members) == 2
	})
	for _, args := range [][]string{{"leader"}, {"leader", "--is", "--id", "a"}, {"leader", "--is", "--id", "b"}} {
		if out := f.exits(1, args...); out != "" {
			t.Errorf("%v: %s", args, out)
		}
	}
	out := f.exits(0, "explain")
	if !strings.HasPrefix(out, "Leader   none\nWhy      paused hard by ") || !strings.Contains(out, "freeze: a is gone; there is no election until "+f.hint("'zkelectd resume'")) {
		t.Errorf("explain: %s", out)
	}
	if strings.Contains(out, "b: ;") || strings.Contains(out, "b: \n") {
		t.Errorf("explain names members that are eligible: %s", out)
	}
	f.exitsWith(0, "Problem  nobody leads: paused hard by ", "status")
	f.exits(0, "resume")
	f.until("b leads", leads("b"))
	f.exits(0, "leader")
}
