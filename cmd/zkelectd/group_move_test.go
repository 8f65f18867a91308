package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// A group is moved to another root and back, while its daemons are stopped one after the other. In neither root a leader works
// while one works in the other, and a daemon that still has the old root never leads.
func TestMoveOfAGroup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	there := *f
	there.paths.Root += "-moved"
	there.daemons = make(map[string]*process)
	defer func() {
		for _, p := range there.daemons {
			p.cmd.Process.Kill()
			<-p.done
		}
	}()
	stop := func(f *fleet, id string) {
		f.daemons[id].signal(syscall.SIGTERM)
		f.exit(id)
	}
	move := func(from, to *fleet) {
		t.Helper()
		from.failsWith("has members (a, a-", "group", "move", name(from), "--to-root", to.paths.Root)
		done := make(chan string)
		go func() {
			out, _ := from.run("group", "move", name(from), "--to-root", to.paths.Root, "--wait")
			done <- out
		}()
		stop(from, "a")
		stop(from, "b")
		if out := <-done; !strings.Contains(out, "is "+to.paths.Root+" now; its next leader has a term above ") {
			t.Fatal(out)
		}
	}
	f.join("a", "b")
	f.waitForChild("a", 1)
	first := f.snapshot().Elected.Record.Term
	move(f, &there)

	f.start("b") // with the old root
	f.eventually("b has tried the old root", func() bool {
		log := f.daemons["b"].output()
		return strings.Count(log, "msg=registered") > 1 || strings.Contains(log, "says that the group's root is "+there.paths.Root)
	})
	there.join("a", "b")
	there.waitForChild("a", 2)
	if term := there.snapshot().Elected.Record.Term; term <= first {
		t.Errorf("term %d after %d", term, first)
	}
	for _, path := range []string{f.paths.Elected(), f.paths.Current()} {
		if data, _, err := f.session.Get(t.Context(), path, false); !errors.Is(err, cluster.ErrNoNode) {
			t.Errorf("in the old root: %s has %q, %v", path, data, err)
		}
	}
	// A command with the old root uses the new one.
	if out, err := f.run("status"); err != nil || !strings.Contains(out, "Group    "+there.paths.Root) || !strings.Contains(out, "Leader   a") {
		t.Errorf("status of the old root: %v\n%s", err, out)
	}
	stop(f, "b")
	move(&there, f)
	f.join("a", "b")
	f.waitForChild("a", 3)
	f.until("a leads", func(g status.Group) bool { return leads("a")(g) && g.Term > first })
	f.checkInvariants()
}

func name(f *fleet) string { return f.paths.Root[strings.LastIndexByte(f.paths.Root, '/')+1:] }
