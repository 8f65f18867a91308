package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// hint returns a hint as it is shown for the group.
func (f *fleet) hint(command string) string { return cluster.InGroup(command, f.groupName()) }

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

// policyFile writes a file with a policy, and returns its path.
func (f *fleet) policyFile(name, policy string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// An operator's policy is in force at once, however often policy has replaced the leader; after that, policy --apply, its forecast,
// status and reload say what holds a better member back.
func TestAnOperatorsPolicyIsNotDamped(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const damped = "max_preemptions: 1, preemption_window: 1h"
	f.configure("x", "dc9", 0, "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}}\npolicy: {filter: [member.id != 'x'], sites: {dc1: 200, dc2: 100}, "+damped+"}\n")
	f.start("x")
	f.until("x has registered", func(g status.Group) bool { return len(g.Members) == 1 })
	for i, id := range []string{"a", "b"} {
		f.configure(id, []string{"dc2", "dc1"}[i], 100, "policy: {"+damped+"}\n")
		f.start(id)
		f.until(id+" leads", leads(id)) // b preempts a: the group has just started, so that does not count
	}
	f.exits(0, "status")
	f.daemons["x"].signal(syscall.SIGTERM)
	f.until("x has left", func(g status.Group) bool { return len(g.Members) == 2 && g.Elector == "a" })

	apply := func(name string, dc1, dc2 int, more string) string {
		return f.policyFile(name, fmt.Sprintf("policy: {filter: [member.id != 'x'], sites: {dc1: %d, dc2: %d}, max_preemptions: 1, preemption_window: 1h%s}\n", dc1, dc2, more))
	}
	for i := range 2 { // each revision has its first election here
		if out := f.exits(0, "policy", "--apply", apply("2.yaml", 100, 200+i, "")); !strings.Contains(out, "a (dc2) takes over: preempt: a is better than b") {
			t.Errorf("no forecast: %s", out)
		}
		f.until("a leads by the new policy", leads("a"))
		f.exits(0, "policy", "--apply", apply("1.yaml", 200+i, 100, ""))
		f.until("b leads by the new policy", leads("b"))
	}
	manual := apply("manual.yaml", 100, 300, ", failback: manual")
	want := "a would be better than b (site dc2 has 300 against site dc1 has 100), but failback is manual; " + f.hint("'zkelectd reelect'") + " moves leadership now\n"
	for _, args := range [][]string{{"policy", "--apply", manual, "--dry-run"}, {"policy", "--apply", manual}, {"status"}, {"explain"}} {
		exit := 0
		if slices.Contains(args, "--dry-run") {
			exit = statusNo // it differs
		}
		if out := f.exits(exit, args...); !strings.Contains(out, want) {
			t.Errorf("%v: %s", args, out)
		}
	}
	f.configure("b", "dc1", 100, "policy: {max_preemptions: 1, preemption_window: 1h, failback: manual, filter: [member.id != 'x'], sites: {dc1: 100, dc2: 400}}\n")
	out, err := exec.Command("zkelectd", "reload", "--config", f.file("b")).CombinedOutput()
	if want := strings.Replace(want, "300", "400", 1); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("reload: %v, %s", err, out)
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
		return g.State == status.StateNone && len(g.Members) == 2 && len(g.Problems) > 0
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
	if out := f.exits(0, "status"); !strings.Contains(out, "Problem  nobody leads: paused hard by ") {
		t.Errorf("status: %s", out)
	}
	f.exits(0, "resume")
	f.until("b leads", leads("b"))
	f.exits(0, "leader")
}
