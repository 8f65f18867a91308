package cli

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/operator/status"
)

// leaderHook returns a hook that writes whom it was told about to a file, after waiting for another file.
func (f *fleet) leaderHook(id, gate string) string {
	return fmt.Sprintf(`hooks: {timeout: 90s, on_leader_change: [sh, -c, "%s echo $MARK $ZKELECTD_NODE $EXTRA $ZKELECTD_LEADER,$ZKELECTD_LEADER_SITE,$ZKELECTD_TERM,$ZKELECTD_CAUSE,$ZKELECTD_PREVIOUS_LEADER,$ZKELECTD_PREVIOUS_CLEAN >>%s"]}
child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, EXTRA: east}, stop_timeout: 400ms}
election: {exclusion: 1s}
policy: {failback: manual}
http: {listen: 'unix:%s'}
`, gate, f.told(id), f.socket(id))
}

func (f *fleet) told(id string) string { return filepath.Join(f.dir, "told-"+id) }

// toldOf waits until the hook of a node was told of a line, and checks that it was told only once.
func (f *fleet) toldOf(id, line string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s is told: %s", id, line), func() bool { return strings.Contains(read(f.told(id)), line+"\n") },
		func() string { return read(f.told(id)) })
	if n := strings.Count(read(f.told(id)), line+"\n"); n != 1 {
		f.t.Errorf("%s was told %d times: %s", id, n, line)
	}
}

// The hook runs on the leader's host and on others, once per term, and the stream of a standby has READY.
func TestEveryHostLearnsWhoLeads(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"a", "b", "c"} {
		f.configure(id, "dc1", 100-i, f.leaderHook(id, ""))
		f.start(id)
		f.until("a leads", leads("a"))
	}
	g := f.until("all have joined", func(g status.Group) bool { return len(g.Members) == 3 && leads("a")(g) })
	for _, id := range []string{"a", "b", "c"} {
		f.toldOf(id, fmt.Sprintf("%s east a,dc1,%d,first,,true", id, g.Term))
	}
	f.answers("c", "/replica", 200)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	resp, err := f.request(ctx, "c", "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		kind := ""
		for lines.Scan() {
			if k, is := strings.CutPrefix(lines.Text(), "event: "); is {
				kind = k
			} else if kind == status.EventLeadership && strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the stream ended without %s: %v", want, lines.Err())
	}
	syscall.Kill(f.daemon("a"), syscall.SIGKILL) // the guard releases
	g = f.until("b leads", leads("b"))
	next(`"state":"NONE","previous_leader":"a"`)
	next(fmt.Sprintf(`{"node":"b","site":"dc1","term":%d,"state":"READY","cause":"%s",`, g.Term, g.Cause))
	for _, id := range []string{"a", "b", "c"} {
		f.toldOf(id, fmt.Sprintf("%s east b,dc1,%d,%s,a,true", id, g.Term, g.Cause))
	}
	f.checkInvariants()
}

// A hook that hangs delays neither a takeover nor the other hosts, and gets the newest change afterwards, with the command that a
// reload has set.
func TestSlowLeaderHook(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := filepath.Join(f.dir, "gate")
	for i, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100-i, f.leaderHook(id, fmt.Sprintf("touch %s/hangs-%s; while [ ! -e %s ]; do sleep 0.05; done; MARK=slow;", f.dir, id, gate)))
		f.start(id)
		f.until("a leads", leads("a"))
	}
	first := f.until("both have joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	f.eventually("the hook of b hangs", func() bool { return exists(filepath.Join(f.dir, "hangs-b")) })
	f.submit("move", "b", "--wait")
	f.until("b leads", leads("b"))
	f.submit("move", "a", "--wait")
	last := f.until("a leads again", leads("a"))
	f.configure("b", "dc1", 99, f.leaderHook("b", ""))
	f.reload("b")
	f.logged("b", "keys=hooks.on_leader_change")
	put(t, gate, "")
	f.toldOf("b", fmt.Sprintf("b east a,dc1,%d,move,b,true", last.Term))
	f.toldOf("a", fmt.Sprintf("slow a east a,dc1,%d,move,b,true", last.Term))
	if got := read(f.told("b")); !strings.HasPrefix(got, "slow b east ") || strings.Count(got, "\n") != 2 || last.Term-first.Term < 2 {
		t.Errorf("b was told\n%s", got)
	}
	f.checkInvariants()
}
