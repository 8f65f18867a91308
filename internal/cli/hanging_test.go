package cli

import (
	"regexp"
	"strconv"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/testhelper"
)

// childOf returns the pid of the work of a slot that a node has started last.
func (f slotFleet) childOf(id string, slot int) int {
	f.t.Helper()
	started := regexp.MustCompile(`"child started".* group=\S+/` + strconv.Itoa(slot) + ` pid=(\d+)`)
	all := started.FindAllStringSubmatch(f.daemons[id].output(), -1)
	if len(all) == 0 {
		f.t.Fatalf("%s has started nothing in slot %d", id, slot)
	}
	pid, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

// slotOf returns a slot that a node leads.
func (f slotFleet) slotOf(id string, count int) int {
	f.t.Helper()
	for i := range count {
		path := f.paths.OfSlot(i).Current()
		data, stat, err := f.session.Get(f.t.Context(), path, false)
		if read := cluster.ReadStored[cluster.Current](path, data, stat, err == nil); read.Record.Node == id {
			return i
		}
	}
	f.t.Fatalf("%s leads no slot", id)
	return 0
}

// The host of the elector has work in a slot that does not die when its registration is deleted. The other host becomes the elector, and leads
// all slots. When the work is dead at last, its host is a member again.
func TestASlotWithWorkThatDoesNotDie(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 2)
	f.run("n1", 2, 2)
	f.settled("n1 leads both slots", 2, map[string]int{"n1": 2})
	f.run("n2", 2, 2)
	f.settled("n2 has a share", 2, map[string]int{"n1": 1, "n2": 1})
	release := testhelper.HangOnDeath(t, f.childOf("n1", f.slotOf("n1", 2)))
	f.write(remove(f.paths.Node("n1")))
	f.settled("n2 leads all slots", 2, map[string]int{"n2": 2})
	if _, _, err := f.session.Get(t.Context(), f.paths.Node("n1"), false); err == nil {
		t.Error("n1 is a member although its work may run")
	}
	f.logged("n1", "leadership has not ended in time")
	release()
	f.settled("n1 has a share again", 2, map[string]int{"n1": 1})
	checkSlots(t, slotLedger(t, f.ledgerFile()), 2)
	f.checkPanics()
}
