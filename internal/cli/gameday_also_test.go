package cli

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// A drill names what else the daemon leads, and is refused while that might not recover. At a terminal it looks again
// once it is confirmed: the leader that it would kill may have changed.
func TestGamedayLooksAtAllThatTheDaemonLeads(t *testing.T) {
	t.Parallel()
	e := newEstateOfMany(t, 2, "policy: {type: first, failback: manual}")
	for _, id := range []string{"n1", "n2"} { // n1 leads all before n2 comes
		e.configure(id)
		e.fleet.start(id)
		e.ledWithout("n2")
		e.eventually(id+" has joined", func() bool { return strings.Count(e.daemons[id].Output(), "msg=registered") == len(e.names) })
	}
	daemon := e.daemon("n1")
	run := func(want string, args ...string) {
		t.Helper()
		out, _ := zkelectd(append(args, "--config", e.file("n1"))...)
		if !strings.Contains(out, want) {
			t.Errorf("%v, want %q:\n%s", args, want, out)
		}
	}
	run("paused", "pause", "-g", "g-01")
	run("nothing was done: g-01: the group is paused: run 'zkelectd resume -g g-01", "gameday", "-g", "g-00", "--yes")
	run("ended", "resume", "-g", "g-01")

	person, program := terminal(t)
	cmd := exec.Command("zkelectd", "gameday", "-g", "g-00", "--config", e.file("n1"))
	cmd.Stdin = program
	e.startCommand("drill", cmd)
	e.logged("drill", "Type the group's name, g-00, to go on: ")
	run("n2 (dc1) leads in term", "move", "-g", "g-00", "--to", "n2", "--wait")
	if _, err := person.WriteString("g-00\n"); err != nil {
		t.Fatal(err)
	}
	code, out := e.exit("drill"), e.daemons["drill"].Output()
	for _, want := range []string{"That daemon leads these, too, and they get another leader as well: g-01\n", "nothing was done: n2 leads with the guard "} {
		if code != statusRefused || !strings.Contains(out, want) {
			t.Errorf("exit status %d, want %q:\n%s", code, want, out)
		}
	}
	if now := e.daemon("n1"); now != daemon {
		t.Errorf("the daemon of n1 was process %d, and is %d", daemon, now)
	}
}

// Only a term that the failure has led to counts.
func TestTheTermAfterADrill(t *testing.T) {
	term := func(n int64, cause cluster.Cause, outcome string) cluster.PastTerm {
		return cluster.PastTerm{Term: n, Cause: cause, Outcome: outcome, Reason: "n2 is better"}
	}
	ready := string(cluster.CurrentReady)
	for name, c := range map[string]struct {
		terms []cluster.PastTerm
		found int64
		err   string
	}{
		"none yet":              {[]cluster.PastTerm{term(7, cluster.CauseFirst, ready)}, 0, ""},
		"the leader was lost":   {[]cluster.PastTerm{term(8, cluster.CauseSilent, ready)}, 8, ""},
		"the next one gave up":  {[]cluster.PastTerm{term(8, cluster.CauseFailure, "gave up"), term(9, cluster.CauseGaveUp, ready)}, 9, ""},
		"decided before it":     {[]cluster.PastTerm{term(8, cluster.CausePreempt, ready)}, 0, "leadership moved in term 8 (preempt): n2 is better"},
		"and not READY by then": {[]cluster.PastTerm{term(8, cluster.CauseMove, "n2 left"), term(9, cluster.CauseFailure, ready)}, 0, "term 8 (move)"},
	} {
		n := nextTerm{after: 7}
		err := n.show(cluster.History{Terms: c.terms})
		if c.found != 0 && (n.found == nil || n.found.Term != c.found || !errors.Is(err, errDone)) || c.found == 0 && n.found != nil ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %+v", name, err, n.found)
		}
	}
}

// A member that could take over one slot of the daemon, but not all of them, is not enough.
func TestGamedayOfSlotsWithoutRoomElsewhere(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 4)
	f.run("n1", 4, 3)
	f.run("n2", 4, 3)
	f.settled("each leads two slots", 4, map[string]int{"n1": 2, "n2": 2})
	for i := range 4 {
		s, err := store.ReadSlot(t.Context(), f.session, f.paths.OfSlot(i))
		if err != nil {
			t.Fatal(err)
		}
		if s.Current.Record.Node == "n1" {
			f.prints(false, []string{"gameday", "--yes", "-g", f.groupName() + "/" + s.Slot}, `nothing was done: .*/\d: nobody could take over from n1: `)
			return
		}
	}
}
