package cli

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// zkelectd runs a command.
func zkelectd(args ...string) (out string, err error) { return zkelectdWith(nil, args...) }

// zkelectdWith is zkelectd with additional environment variables.
func zkelectdWith(env []string, args ...string) (out string, err error) {
	cmd := exec.Command("zkelectd", args...)
	cmd.Env = append(os.Environ(), env...)
	data, err := cmd.CombinedOutput()
	return string(data), err
}

// run runs a command on the group of the fleet.
func (f *fleet) run(args ...string) (out string, err error) {
	return zkelectdWith(f.env, append(args, "--zk", strings.Join(f.servers, ","), "--root", f.paths.Root)...)
}

// runAs runs a command with the configuration of a node.
func (f *fleet) runAs(id string, args ...string) (out string, err error) {
	return zkelectdWith(f.env, append(args, "--config", f.file(id))...)
}

// succeedsWith runs a command that must succeed and print a text.
func (f *fleet) succeedsWith(want string, args ...string) {
	f.t.Helper()
	if out, err := f.run(args...); err != nil || !strings.Contains(out, want) {
		f.t.Errorf("%v: %v, %s, want %q", args, err, out, want)
	}
}

// failsWith runs a command that must fail with an error.
func (f *fleet) failsWith(want string, args ...string) {
	f.t.Helper()
	if out, err := f.run(args...); err == nil || !strings.Contains(out, want) {
		f.t.Errorf("%v: %v, %s, want %q", args, err, out, want)
	}
}

// Requests in a group of two, whose daemons have no http.listen: a leader that cannot be asked is neither confirmed nor denied.
func TestRequestsInAGroup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.exitsWith(2, "a has no http.listen that other hosts can reach", "leader", "--is", "--id", "a", "--strict")
	if out := f.exits(0, "status"); strings.Contains(out, "Lease ") {
		t.Errorf("status: %s", out)
	}
	f.dryRuns()
	f.unknownNodes()
	f.submitsBesideTheElector()
	f.submit("uncordon", "b")
	f.reportsNoOldGap()
	f.stop("b")
	f.isInterrupted()
}

// unknownNodes: each command that names a node of the group refuses one that the group does not know.
func (f *fleet) unknownNodes() {
	f.t.Helper()
	lines := []string{"whatif --without nX", "whatif --cordon nX", "whatif --drain nX", "whatif --without-site nX", "fence nX --yes"}
	for _, kind := range request.Kinds() {
		if kind.Takes(request.FieldNode) {
			lines = append(lines, string(kind)+" nX")
		}
	}
	for _, line := range lines {
		f.exits(statusRefused, strings.Fields(line)...)
	}
}

// dryRuns: with --dry-run a request prints what would happen, and changes nothing.
func (f *fleet) dryRuns() {
	t := f.t
	t.Helper()
	before := f.snapshot()
	for _, c := range []struct{ args, want string }{
		{"move --to b", "b (dc1) takes over: move: moved to b by"},
		{"move", "moves leadership from a (dc1) to b (dc1) for 10m0s"},
		{"drain a", "b (dc1) takes over: drain: "},
		{"cordon a", "a (dc1) continues to lead"},
		{"pause --hard", "a (dc1) continues to lead"},
		{"reelect", "a (dc1) continues to lead"},
		{"resume", "nothing to do: "},
		{"uncordon a", "nothing to do: "},
		{"clear-strikes --all", "nothing to do: "},
	} {
		f.exitsWith(0, c.want, append(strings.Fields(c.args), "--dry-run")...)
	}
	f.exits(statusError, "move", "--to", "", "--dry-run")
	f.exits(statusRefused, "move", "--to", "nobody", "--dry-run")
	after := f.snapshot()
	if after.Control.Stat != before.Control.Stat || after.Elected.Stat != before.Elected.Stat || after.Control.Exists != before.Control.Exists {
		t.Errorf("something was written: %+v, %+v", after.Control, after.Elected.Stat)
	}
}

// submitsBesideTheElector: the elector's updates of the control record do not conflict with an operator's request.
func (f *fleet) submitsBesideTheElector() {
	t := f.t
	t.Helper()
	g := groupAt(f.session, config.Config{}, "", f.paths.Root)
	times := 0
	_, err := g.submitter().Submit(t.Context(), func(q whatif.Question) (request.Plan, error) {
		if times++; times == 1 {
			f.write(f.paths.ControlTx("", q.Snapshot.Control, q.Snapshot.Control.Record)...)
		}
		return request.Request{Kind: request.KindCordon, Node: "b", Options: request.Options{By: "ann@host"}}.Plan(q)
	})
	if err != nil || times != 2 {
		t.Errorf("%v after %d times", err, times)
	}
}

func TestAMoveToANodeThatDiesOnTheWayFallsBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.configure("c", "dc2", 1, "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms, ready: {exec: [\"false\"], timeout: 1h}}\n")
	f.start("c")
	f.until("c has joined", func(g status.Group) bool { return len(g.Members) == 3 })
	type result struct {
		out string
		err error
	}
	moved := make(chan result, 1)
	go func() {
		out, err := f.run("move", "--to", "c", "--wait")
		moved <- result{out, err}
	}()
	f.until("c takes over", func(g status.Group) bool { return g.Leader == "c" && g.State == string(cluster.CurrentProgress) })
	f.stop("c")
	f.until("a leads again", leads("a"))
	r := <-moved
	if r.err == nil || !strings.Contains(r.out, "the request has ended: move to c: ") {
		t.Errorf("%v, %s", r.err, r.out)
	}
	if out, _ := f.run("status"); strings.Contains(out, "move to c") && strings.Contains(out, "Request") {
		t.Errorf("the move stands:\n%s", out)
	}
	f.checkInvariants()
}

// reportsNoOldGap: a request that leaves the leader in place has caused no time without a leader.
func (f *fleet) reportsNoOldGap() {
	t := f.t
	t.Helper()
	f.exitsWith(0, " without a leader", "move", "b", "--wait")
	for _, args := range [][]string{{"move", "b", "--wait"}, {"reelect", "--wait", "--dry-run"}} {
		if out := f.exits(0, args...); strings.Contains(out, " without a leader") || args[0] == "move" && !strings.Contains(out, "b (dc1) still leads in term ") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := f.exits(0, "move", "b", "--wait", "-o", "json"); strings.Contains(out, "leaderless") {
		t.Errorf("JSON: %s", out)
	}
	f.exits(0, "reelect", "--wait")
	if out := f.exits(0, "reelect", "--wait"); strings.Contains(out, " without a leader") || !strings.Contains(out, " still leads in term ") {
		t.Errorf("reelect: %s", out)
	}
}

// isInterrupted: the output of a command that is interrupted while it waits says what stays in force and how to end it.
func (f *fleet) isInterrupted() {
	t := f.t
	t.Helper()
	for _, args := range [][]string{{"drain", "a", "--force"}, {"drain", "dc1", "--force"}} {
		id := "drain " + args[1]
		f.startCommand(id, exec.Command("zkelectd", append(args, "--wait", "--zk", f.servers[0], "--root", f.paths.Root)...))
		f.eventually("the request is in force", f.drained)
		f.daemons[id].Signal(syscall.SIGINT)
		code, out := f.exit(id), f.daemons[id].Output()
		_, end, _ := strings.Cut(out, "interrupted; the request stays in force; to end it: '")
		end, _, found := strings.Cut(end, "'")
		if code != statusTimedOut || !found || !strings.HasPrefix(end, "zkelectd uncordon ") {
			t.Fatalf("exit status %d\n%s", code, out)
		}
		if out, err := f.run(strings.Fields(end)[1:]...); err != nil || f.drained() {
			t.Errorf("%s: %v, %s", end, err, out)
		}
	}
}

// drained reports whether a drain is in force.
func (f *fleet) drained() bool {
	snap, err := store.ReadAll(f.t.Context(), f.session, f.paths, false)
	return err == nil && len(snap.Control.Record.Cordons) > 0
}
