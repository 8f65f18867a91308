package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// The member leads that measures the highest score once the leader is lost, whatever members have published before. A
// planned move asks as well, and a lag limit goes by the answers.
func TestTheMemberWithTheHighestMeasuredScoreLeads(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := func(id string) string { return filepath.Join(f.dir, id+".position") }
	for i, id := range []string{"a", "b", "c"} {
		put(t, file(id), fmt.Sprintln(3000-1000*i))
		f.configure(id, "dc1", 100-i, fmt.Sprintf("score: {exec: [cat, %s], at_election: true, timeout: 20s}\n", file(id))+
			"policy: {type: score, hysteresis: 0, failback: manual, filter: ['best.score - member.score <= 100']}\nzookeeper: {session_timeout: 12s}\n")
		f.start(id)
		f.until(id+" has joined", func(g status.Group) bool {
			return len(g.Members) == i+1 && leads("a")(g) && !slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Score == nil })
		})
	}
	f.until("the deputies are published", func(g status.Group) bool { return len(g.Deputies) == 2 })
	put(t, file("b"), "9007199254740900\n")
	put(t, file("c"), "9007199254740992\n")
	f.crash("a")
	if g := f.until("c leads", leads("c")); g.Cause != string(cluster.CauseSilent) {
		t.Errorf("%s: %s", g.Cause, g.Reason)
	}
	log := f.daemons["b"].Output() // the first deputy
	called, silent := strings.Index(log, "called the roll"), strings.Index(log, "the leader has fallen silent")
	if called < 0 || silent < called {
		t.Errorf("the roll was not called before the lease was over:\n%s", log)
	}
	const answers = "c 9007199254740992, b 9007199254740900"
	for command, want := range map[string]string{
		"explain": "Answers  " + answers, "history": "[answers: " + answers, "whatif": "Answers  " + answers,
	} {
		f.succeedsWith(want, command)
	}

	put(t, file("b"), "9007199254740992\n")
	put(t, file("c"), "9007199254740000\n")
	if out, err := f.run("reelect"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if g := f.until("b leads", leads("b")); g.Cause != string(cluster.CauseReelect) {
		t.Errorf("%s: %s", g.Cause, g.Reason)
	}
	if r := f.snapshot().Elected.Record.Ranking; len(r) < 2 || !strings.Contains(r[1].Reason, "best.score") && !strings.Contains(r[len(r)-1].Reason, "best.score") {
		t.Errorf("c lags behind the limit: %+v", r)
	}
	f.checkInvariants()
}
