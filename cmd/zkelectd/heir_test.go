package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/procinfo"
	"zkelectd/internal/status"
)

// heirHooks returns a configuration whose hook and preparation of the heir write to files.
func (f *fleet) heirHooks(id string) string {
	return fmt.Sprintf(`hooks: {on_heir: [sh, -c, "echo $ZKELECTD_HEIR $ZKELECTD_LEADER >>%s"]}
child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms, prepare: {command: [sh, -c, "echo warm >>%s; exec sleep 1000"]}}
election: {exclusion: 1s, failback: {mode: manual}}
http: {listen: 'unix:%s'}
`, f.told(id), f.warmed(id), f.socket(id))
}

func (f *fleet) warmed(id string) string { return filepath.Join(f.dir, "warmed-"+id) }

// The heir is in the status, answers its probe, runs its hook and its preparation, follows the group without a new term, and leads next.
func TestTheHeirLeadsNext(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"a", "b", "c"} {
		f.configure(id, "dc1", 100-i, f.heirHooks(id))
		f.start(id)
		f.until("a leads", leads("a"))
	}
	heir := func(id string) func(status.Group) bool {
		return func(g status.Group) bool { return g.Heir == id && g.State == "READY" }
	}
	first := f.until("b is the heir", heir("b"))
	f.answers("a", "/heir", 503)
	f.answers("b", "/heir", 200)
	f.answers("c", "/heir", 503)
	f.eventually("b prepares", func() bool { return exists(f.warmed("b")) })
	if table := f.table(); !strings.Contains(table, "Heir     b (site dc1), elected next if a is lost") {
		t.Errorf("the status does not name the heir:\n%s", table)
	}
	f.submit("cordon", "b")
	g := f.until("c is the heir", heir("c"))
	f.answers("c", "/heir", 200)
	f.answers("b", "/heir", 503)
	f.eventually("b is told", func() bool { return read(f.told("b")) == "true a\nfalse a\n" }, func() string { return read(f.told("b")) })
	if g.Term != first.Term || len(f.startedTerms()) != 1 {
		t.Errorf("term %d after %d, started %v: a change of the heir must not begin a term", g.Term, first.Term, f.startedTerms())
	}
	f.eventually("c prepares", func() bool { return exists(f.warmed("c")) })
	syscall.Kill(f.daemon("a"), syscall.SIGKILL) // the guard releases
	f.until("c leads", leads("c"))
	f.eventually("c is told that it is no longer the heir", func() bool { return strings.HasSuffix(read(f.told("c")), "true a\nfalse c\n") },
		func() string { return read(f.told("c")) })
	f.checkInvariants()
}

// A daemon that is killed leaves nothing of child.prepare behind for long, not even what has left its process group.
func TestThePreparationEndsWithItsDaemon(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	config := func(prepare string) string {
		return fmt.Sprintf("child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms, prepare: {command: [sh, -c, %q]}}\n", prepare)
	}
	f.configure("a", "dc1", 100, config("true"))
	f.start("a")
	f.until("a leads", leads("a"))
	f.configure("b", "dc1", 99, config("setsid sh -c 'echo $$ >>"+f.warmed("b")+"; exec sleep 1000' & exec sleep 1000"))
	f.start("b")
	pids := func() []string { return strings.Fields(read(f.warmed("b"))) }
	f.eventually("b prepares", func() bool { return exists(f.warmed("b")) && len(pids()) == 1 })
	first, err := strconv.Atoi(pids()[0])
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(f.daemon("b"), syscall.SIGKILL)
	f.eventually("the preparation ends", func() bool { return procinfo.Arguments(first) == nil })
	f.eventually("b prepares again", func() bool { return len(pids()) == 2 })
	f.daemons["b"].signal(syscall.SIGTERM)
	f.exit("b")
	last, _ := strconv.Atoi(pids()[1])
	f.eventually("the second one ends", func() bool { return procinfo.Arguments(last) == nil })
	f.checkInvariants()
}
