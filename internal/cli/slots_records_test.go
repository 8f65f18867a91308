package cli

import (
	"os/exec"
	"reflect"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
)

// working returns the tenures that have worked since a time.
func (f slotFleet) working(since time.Duration) []slotTenure {
	return slices.DeleteFunc(slotLedger(f.t, f.ledgerFile()), func(s slotTenure) bool { return s.end < since.Nanoseconds() })
}

// A stranger changes the record of slots while daemons work. If it is of a newer version, they leave it alone, and no
// work starts or stops. If it is damaged or emptied, they write it again as it was, which is not what their files
// have. If it is deleted, the fences are gone with it: the elector begins a new epoch with the size in force.
func TestDamagedRecordOfSlots(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 4)
	f.write(f.paths.SlotsTx("", f.slots(), cluster.NewSlots(cluster.SlotSize{Count: 4, PerNode: 3}, "the test", time.Now()))...)
	for _, id := range []string{"n1", "n2"} {
		f.configureSlots(id, 2, 2, "zookeeper: {session_timeout: 10s}\n")
		f.start(id)
	}
	f.settled("all slots have leaders", 4, map[string]int{"n1": 2, "n2": 2})
	settled := boottime.Now()
	f.eventually("all slots work", func() bool { return len(f.working(settled)) == 4 }) // READY may precede the first line of the ledger
	before, good := len(slotLedger(t, f.ledgerFile())), f.slots().Record

	f.write(overwrite(f.paths.Slots(), `{"v":99}`))
	changed := boottime.Now()
	f.logged("n1", "does not elect or take over until it is upgraded")
	newer := "znode " + f.paths.Slots() + " has format version 99, this zkelectd reads up to 1: upgrade this host"
	f.prints(false, []string{"status"}, newer+": until then no slot gets another leader")
	f.prints(false, []string{"slots", "2"}, newer)
	f.prints(false, []string{"repair"}, "slots: "+newer, "not repaired: slots: upgrade this host")
	f.eventually("four slots work on", func() bool { return len(f.working(changed+time.Second)) == 4 })
	f.write(overwrite(f.paths.Slots(), string(cluster.Encode(&good))))
	f.settled("the same size is in force again", 4, map[string]int{"n1": 2, "n2": 2})
	if all := slotLedger(t, f.ledgerFile()); len(all) != before {
		t.Errorf("work has started: %+v", all[before:])
	}

	for _, data := range []string{`{"v":1,`, ""} {
		f.write(overwrite(f.paths.Slots(), data))
		f.eventually("the record is written again", func() bool { return f.slots().Readable() })
		if now := f.slots().Record; !reflect.DeepEqual(now, good) {
			t.Errorf("after %q: %+v", data, now)
		}
		f.prints(true, []string{"repair"}, "nothing is damaged")
	}
	f.settled("the same leaders", 4, map[string]int{"n1": 2, "n2": 2})
	if all := slotLedger(t, f.ledgerFile()); len(all) != before {
		t.Errorf("work has started: %+v", all[before:])
	}

	for f.exists(f.paths.Slots()) {
		var ops []cluster.Op
		for i := range 4 {
			for _, path := range []string{"/current", "/elected", "/heir", "/history", ""} {
				if path = f.paths.OfSlot(i).Leader() + path; f.exists(path) {
					ops = append(ops, remove(path))
				}
			}
		}
		_, _ = f.session.Do(t.Context(), append(ops, remove(f.paths.Slots()))...) // it fails if something has changed
	}
	f.eventually("another epoch", func() bool { return f.slots().Record.Epoch > good.Epoch })
	f.settled("all slots have leaders again", 4, map[string]int{"n1": 2, "n2": 2})
	if now := f.slots().Record; now.SlotSize != good.SlotSize {
		t.Errorf("%+v", now)
	}
	checkSlots(t, slotLedger(t, f.ledgerFile()), 3)
	f.checkPanics()
}

// A drain that waits is not done because the record of slots cannot be read: it goes on once it can.
func TestDrainWaitsForTheRecordOfSlots(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 2)
	f.run("n1", 2, 2)
	f.settled("n1 leads", 2, map[string]int{"n1": 2})
	f.startCommand("drain", exec.Command("zkelectd", "drain", "n1", "--wait", "--force", "--config", f.file("n1")))
	f.logged("drain", "slot 0: n1 is READY")
	good := f.slots().Record
	f.write(overwrite(f.paths.Slots(), `{"v":99}`))
	f.logged("drain", "not live since")
	f.logged("drain", "until then no slot gets another leader; leaders keep working; trying again")
	f.write(overwrite(f.paths.Slots(), string(cluster.Encode(&good))))
	f.run("n2", 2, 2)
	if code := f.exit("drain"); code != 0 {
		t.Errorf("exit status %d: %s", code, f.daemons["drain"].Output())
	}
	if led, all := f.leaders(2); !all || led["n2"] != 2 {
		t.Errorf("led by %v", led)
	}
}
