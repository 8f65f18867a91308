package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// prints runs a command with the configuration of n1, which must print the texts, and succeed or fail.
func (f slotFleet) prints(succeeds bool, args []string, texts ...string) {
	f.t.Helper()
	out, err := f.runAs("n1", args...)
	for _, text := range texts {
		if (err == nil) != succeeds || !strings.Contains(out, text) {
			f.t.Errorf("%v: %v, want %q:\n%s", args, err, text, out)
			return
		}
	}
}

// working returns the tenures that have worked since a time.
func (f slotFleet) working(since time.Duration) []slotTenure {
	return slices.DeleteFunc(slotLedger(f.t, f.ledgerFile()), func(s slotTenure) bool { return s.end < since.Nanoseconds() })
}

// A stranger changes the record of slots while daemons work. If it is of a newer version, they leave it alone, and no work starts or stops.
// If it is damaged or emptied, they write it again, with the size in force, which is not that of their files; all work restarts in a new
// epoch.
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
	f.prints(true, []string{"status"}, "Problem  "+newer+": until then no slot gets another leader", "Slots    not known")
	f.prints(false, []string{"slots", "set", "--count", "2", "--yes"}, newer)
	f.prints(false, []string{"repair"}, "slots: "+newer, "not repaired: slots: upgrade this host")
	f.eventually("four slots work on", func() bool { return len(f.working(changed+time.Second)) == 4 })
	f.write(overwrite(f.paths.Slots(), string(cluster.Encode(&good))))
	f.settled("the same size is in force again", 4, map[string]int{"n1": 2, "n2": 2})
	if all := slotLedger(t, f.ledgerFile()); len(all) != before {
		t.Errorf("work has started: %+v", all[before:])
	}

	for _, data := range []string{`{"v":1,`, ""} {
		f.write(overwrite(f.paths.Slots(), data))
		f.eventually("the record is written again", func() bool { return f.slots().Record.Epoch > good.Epoch && f.slots().Record.Next == nil })
		f.settled("all slots have leaders after "+data, 4, nil)
		if now := f.slots().Record; now.SlotSize != good.SlotSize || !strings.Contains(now.Reason, "znode "+f.paths.Slots()+" is") {
			t.Errorf("after %q: %+v", data, now)
		}
		good = f.slots().Record
		f.prints(true, []string{"repair"}, "nothing is damaged")
	}
	checkSlots(t, slotLedger(t, f.ledgerFile()), 3)
	f.checkPanics()
}

// While a resize waits, another one is refused, whoever asks for it. One that a stranger writes into the record waits as long, and no work
// starts before.
func TestSecondResizeDuringTheFirst(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 4)
	f.run("n1", 2, 2)
	f.run("n2", 2, 2)
	f.settled("two slots", 2, map[string]int{"n1": 1, "n2": 1})
	before := f.slots()
	held := f.paths.OfSlot(2).Current() // the resize waits until this is gone
	// Its holder has a minute to release it before it is revoked.
	f.write(overwrite(f.paths.OfSlot(2).Leader(), string(cluster.Encode(&cluster.Fence{State: cluster.FenceReleased, RevokeTimeout: cluster.Duration(time.Minute), Time: time.Now()}))))
	f.write(cluster.Op{
		Kind: cluster.OpCreate, Path: held, Ephemeral: true,
		Data: cluster.Encode(&cluster.Current{Node: "n9", Term: 1, State: cluster.CurrentReady, Incarnation: "n9-0000000000000001-n_0000000009"}),
	})
	f.prints(true, []string{"slots", "set", "--count", "3", "--per-node", "2", "--yes", "--reason", "first"}, "the resize has begun")
	waits := func(resize string) {
		t.Helper()
		f.eventually("the elector waits for slot 2", func() bool {
			logs := f.daemons["n1"].output() + f.daemons["n2"].output()
			return strings.Contains(logs, resize+": slot 2 has a leader that is stopping") && !f.exists(f.paths.OfSlot(0).Current()) && !f.exists(f.paths.OfSlot(1).Current())
		})
	}
	waits("first")
	f.prints(true, []string{"status"}, "a resize to 3 slots, at most 2 per node is under way since ")
	f.prints(false, []string{"slots", "set", "--count", "4", "--yes"}, "a resize to 3 slots, at most 2 per node requested by ", ": first is under way: wait until it has ended")
	f.prints(true, []string{"slots", "set", "--count", "3", "--per-node", "2", "--yes"}, "first is under way already")
	size := cluster.SlotSize{Count: 4, PerNode: 2}
	if _, err := f.session.Do(t.Context(), f.paths.SlotsTx("", before, before.Record.Resized(size, "a late operator", "", time.Now()))...); !errors.Is(err, cluster.ErrBadVersion) {
		t.Errorf("a resize by an older record: %v", err)
	}

	closed := f.slots()
	f.write(f.paths.SlotsTx("", closed, closed.Record.Resized(size, "a stranger", "", time.Now()))...)
	waits("requested by a stranger")
	released := boottime.Now()
	if all := f.working(released); len(all) > 0 {
		t.Errorf("work during a resize: %+v", all)
	}
	f.write(remove(held))
	f.settled("four slots", 4, map[string]int{"n1": 2, "n2": 2})
	all := slotLedger(t, f.ledgerFile())
	checkSlots(t, all, 2)
	for _, s := range all {
		if s.epoch != before.Record.Epoch && (s.epoch != before.Record.Epoch+1 || s.start < released.Nanoseconds()) {
			t.Errorf("work in another epoch than the two, or during the resize: %+v", s)
		}
	}
	f.checkPanics()
}

// exists reports whether a znode exists.
func (f slotFleet) exists(path string) bool {
	f.t.Helper()
	_, _, err := f.session.Get(f.t.Context(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		f.t.Fatal(err)
	}
	return err == nil
}

// Every znode of a group with slots gets the ACL of the configuration, by init and by the daemons, and acl apply changes all of them while
// the daemons work.
func TestACLsOfSlots(t *testing.T) {
	t.Parallel()
	f := slotFleet{newClosedFleet(t, zkstore.ACLPrivate)}
	f.env = nil // it is in the files
	for _, id := range []string{"n1", "n2"} {
		f.configureSlots(id, 4, 2, f.closed("private"))
	}
	f.prints(true, []string{"init"}, "is initialized with 4 slots, at most 2 per node: its first leaders need not wait")
	f.checkACLs("private", 0)
	f.start("n1")
	f.start("n2")
	f.settled("all slots have leaders", 4, map[string]int{"n1": 2, "n2": 2})
	f.checkACLs("private", 4)
	stranger := newFleet(t).session
	third := f.paths.OfSlot(2)
	for _, path := range []string{f.paths.Slots(), third.Leader(), third.Elected(), third.Current()} {
		if _, _, err := stranger.Get(t.Context(), path, false); err == nil {
			t.Errorf("an unauthorized client reads %s", path)
		}
	}
	before := len(slotLedger(t, f.ledgerFile()))
	f.configureSlots("n1", 4, 2, f.closed("readable"))
	f.prints(true, []string{"acl", "apply"}, third.Current()+": changed digest:zkelectd/", f.paths.Slots()+": changed ", third.Leader()+": changed ", third.Elected()+": changed ")
	// A daemon that has the old setting may create a znode at any time.
	f.eventually("all znodes have the new ACL", func() bool {
		if _, err := f.runAs("n1", "acl", "apply"); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(f.shownACLs("readable"), func(z zkstore.ZnodeACL) bool { return !z.Configured })
	})
	if _, _, err := stranger.Get(t.Context(), third.Elected(), false); err != nil {
		t.Error(err)
	}
	if _, err := stranger.Do(t.Context(), overwrite(f.paths.Slots(), "")); err == nil {
		t.Error("an unauthorized client writes the record of slots")
	}
	f.settled("nothing has stopped", 4, nil)
	if all := slotLedger(t, f.ledgerFile()); len(all) != before {
		t.Errorf("work has started again: %+v", all)
	}
	f.checkSecret(password)
	f.checkPanics()
}

// closed returns the settings of a closed fleet for an ACL.
func (f slotFleet) closed(acl string) string {
	return fmt.Sprintf("zookeeper: {session_timeout: 10s, auth: {file: %s}, acl: %s}\n", filepath.Join(f.dir, "auth"), acl)
}

// checkACLs checks that every znode of the group has the ACL of the configuration, and that the znodes of four slots are among them, with
// the leaderships of so many.
func (f slotFleet) checkACLs(acl string, led int) {
	f.t.Helper()
	znodes := f.shownACLs(acl)
	found := make(map[string]bool)
	for _, z := range znodes {
		found[z.Path] = true
		if !z.Configured {
			f.t.Errorf("%s has the ACL %s, not that of %s", z.Path, z.ACL, acl)
		}
	}
	want := []string{f.paths.Root, f.paths.Slots()}
	for i := range 4 {
		p := f.paths.OfSlot(i)
		want = append(want, p.Leader())
		if i < led {
			want = append(want, p.Elected(), p.Current())
		}
	}
	for _, path := range want {
		if !found[path] {
			f.t.Errorf("acl show lacks %s: %s", path, fmt.Sprint(znodes))
		}
	}
}

// shownACLs returns the znodes of the group with their ACLs; the configured one is acl.
func (f slotFleet) shownACLs(acl string) []zkstore.ZnodeACL {
	f.t.Helper()
	out, err := f.runAs("n1", "acl", "show", "-o", "json")
	var shown tree
	if err == nil {
		err = json.Unmarshal([]byte(out), &shown)
	}
	if err != nil || shown.ACL != acl {
		f.t.Fatalf("%v\n%s", err, out)
	}
	return shown.Znodes
}
