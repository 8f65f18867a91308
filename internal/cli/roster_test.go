package cli

import (
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// absentAs reports whether a node is absent in a state.
func absentAs(id, state string) func(status.Group) bool {
	return func(g status.Group) bool {
		for _, m := range g.Absent {
			if m.Node == id && m.State == state {
				return m.Left != nil
			}
		}
		return false
	}
}

// A member that is lost stays visible until it is back or is forgotten. One that was stopped says so. status --check exits as a
// monitoring plugin, with each state of the group.
func TestLostMembersAreRemembered(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b", "c")
	f.until("all are expected", func(g status.Group) bool { return g.Expected == 3 && len(g.Absent) == 0 })
	check := func(code int, want string) {
		t.Helper()
		f.exitsWith(code, want, "status", "--check")
	}
	check(checkOK, "ZKELECTD OK - a leads in term ")
	check(checkOK, " | groups=1 ready=1 members=3 eligible=3 problems=0\n")
	f.crash("c")
	f.until("c is lost", absentAs("c", "lost"))
	if out, err := f.run("status"); err != nil || !strings.Contains(out, "2 of 3 expected; lost: c ("+f.typedFor(f.command("'zkelectd forget c'"))) || !strings.Contains(out, "LOST ") {
		t.Errorf("%v\n%s", err, out)
	}
	f.logged("a", "a member is lost")
	f.failsWith("a is a member: only a node that has left can be forgotten", "forget", "a")

	f.start("c")
	f.until("c is back", func(g status.Group) bool { return len(g.Members) == 3 && len(g.Absent) == 0 })
	f.stop("c")
	f.until("c is stopped", absentAs("c", "stopped"))

	f.submit("cordon", "b")
	check(checkWarning, "nobody could take over from a: b: cordoned by ")
	f.succeedsWith(`"nobody could take over from a: b: cordoned by `, "status", "-o", "json")
	f.submit("uncordon", "b")
	f.crash("b")
	f.until("b is lost", absentAs("b", "lost"))
	check(checkWarning, "ZKELECTD WARNING - lost: b; ")
	f.succeedsWith("forgotten: b (site dc1), lost", "forget", "--lost", "--reason", "scrapped")
	g := f.until("b is forgotten", func(g status.Group) bool { return len(g.Absent) == 1 })
	if g.Expected != 2 || !absentAs("c", "stopped")(g) {
		t.Errorf("%+v", g.Absent)
	}
	f.submit("forget", "c")
	f.until("c is forgotten", func(g status.Group) bool { return len(g.Absent) == 0 && g.Expected == 1 })
	f.exitsWith(statusRefused, `no node "c" has left the group`, "forget", "c")

	f.configure("d", "dc1", 1, "")
	put(t, f.file("d"), strings.Replace(read(f.file("d")), "node: {", "node: {forget_after: 2s, ", 1))
	f.start("d")
	f.until("d has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	f.crash("d")
	f.until("d is lost", absentAs("d", "lost"))
	f.until("d is forgotten by itself", func(g status.Group) bool { return len(g.Absent) == 0 && g.Expected == 1 })

	// The last one is lost, too: nobody is left to write it down.
	f.crash("a")
	f.until("a is lost", func(g status.Group) bool {
		return len(g.Members) == 0 && len(g.Absent) == 1 && g.Absent[0].State == string(cluster.LeftLost) && g.Absent[0].Left == nil
	})
	check(checkCritical, "ZKELECTD CRITICAL - no leader: no daemon is registered; lost: a")
	f.checkInvariants()
}

// Whatever is in the roster, the group goes on, the output stays readable, and the elector repairs the record.
func TestHostileRoster(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.until("both are expected", func(g status.Group) bool { return g.Expected == 2 })
	f.waitForWork("a")
	tenures := len(f.checkInvariants())
	var nodes []string
	for i := range 3000 {
		nodes = append(nodes, fmt.Sprintf(`{"id":"x%04d\u001b[2J","left":{"how":"lost\u202e","time":"2026-05-04T12:00:00Z"}}`, i))
	}
	f.write(overwrite(f.paths.Roster(), `{"v":1,"nodes":[`+strings.Join(nodes, ",")+`]}`))
	f.until("it is bounded", func(g status.Group) bool { return len(g.Absent) == cluster.MaxLeft })
	if out, err := f.run("status"); err != nil || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%v %.500q", err, out)
	}
	for _, data := range []string{"garbage", "", "\x1f\x8bgarbage", strings.Repeat("x", 700<<10)} {
		f.write(overwrite(f.paths.Roster(), data))
		f.until("it is repaired", func(g status.Group) bool { return g.Expected == 2 && len(g.Absent) == 0 && len(g.Problems) == 0 })
	}
	f.write(cluster.Op{Kind: cluster.OpDelete, Path: f.paths.Roster(), Version: cluster.AnyVersion})
	f.until("it is written again", func(g status.Group) bool { return f.snapshot().Roster.Readable() })
	f.write(overwrite(f.paths.Roster(), `{"v":99}`))
	f.until("a newer one is named", func(g status.Group) bool {
		return strings.Contains(strings.Join(g.Problems, " "), "has format version 99")
	})
	f.crash("b")
	f.until("the group goes on", func(g status.Group) bool { return len(g.Members) == 1 && leads("a")(g) })
	if f.snapshot().Roster.Newer() == nil {
		t.Error("a record of a newer version was overwritten")
	}
	if n := len(f.checkInvariants()); n != tenures {
		t.Errorf("%d tenures, %d before: the roster has influenced an election", n, tenures)
	}
}
