package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
)

// slotChild is the work of one slot. It records when it works: lines of "boottime-ns node slot slots epoch argument event" in one file
// for the whole fleet.
func slotChild() {
	file := openLedger()
	write := func(event string) {
		fmt.Fprintf(file, "%d %s %s %s %s %s %s\n", boottime.Now().Nanoseconds(), os.Getenv("ZKELECTD_NODE"), os.Getenv("ZKELECTD_SLOT"),
			os.Getenv("ZKELECTD_SLOTS"), os.Getenv("ZKELECTD_EPOCH"), os.Args[1], event)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM) // before it records that it works
	write("start")
	beat := time.NewTicker(10 * time.Millisecond)
	for {
		select {
		case <-beat.C:
			write("beat")
		case <-stop:
			write("end")
			os.Exit(0)
		}
	}
}

// slotTenure is the life of one child of a slot.
type slotTenure struct {
	node, argument string
	slot, slots    int
	epoch          int64
	start, end     int64
}

// slotLedger returns the tenures, sorted by start.
func slotLedger(t *testing.T, path string) []slotTenure {
	t.Helper()
	var all []slotTenure
	var at int64
	var s slotTenure
	var event string
	scanLedger(t, path, func() {
		if event == "start" {
			s.start, s.end = at, at
			all = append(all, s)
			return
		}
		for i := range slices.Backward(all) {
			if all[i].node == s.node && all[i].slot == s.slot && all[i].epoch == s.epoch {
				all[i].end = at
				break
			}
		}
	}, &at, &s.node, &s.slot, &s.slots, &s.epoch, &s.argument, &event)
	slices.SortFunc(all, func(a, b slotTenure) int { return cmp.Compare(a.start, b.start) })
	return all
}

// checkSlots checks S1 in the ledger: the works of one slot never overlap, nor do those of two epochs; and that no node runs more than
// perNode works at once.
func checkSlots(t *testing.T, all []slotTenure, perNode int) {
	t.Helper()
	for i, a := range all {
		if want := fmt.Sprintf("%d-of-%d", a.slot, a.slots); a.argument != want {
			t.Errorf("slot %d has the argument %s", a.slot, a.argument)
		}
		atOnce := 1
		for _, b := range all[:i] {
			overlap := a.start < b.end
			switch {
			case overlap && a.slot == b.slot:
				t.Errorf("two children of slot %d at work: %+v, %+v", a.slot, b, a)
			case overlap && a.epoch != b.epoch:
				t.Errorf("children of two epochs at work: %+v, %+v", b, a)
			case overlap && a.node == b.node:
				atOnce++
			}
		}
		if atOnce > perNode {
			t.Errorf("%d works on %s when %+v starts", atOnce, a.node, a)
		}
	}
}

// slotFleet is a group with slots.
type slotFleet struct{ *fleet }

func newSlotFleet(t *testing.T, count int) slotFleet {
	t.Helper()
	f := slotFleet{openFleet(t, fmt.Sprintf("/groups/g%d", groups.Add(1)))}
	for i := range count {
		if err := store.Init(t.Context(), f.session, f.paths.OfSlot(i), "the test"); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// run configures and starts a daemon.
func (f slotFleet) run(id string, count, perNode int) {
	f.t.Helper()
	f.configureSlots(id, count, perNode, "")
	f.start(id)
}

// configureSlots configures a daemon; extra is YAML with further sections.
func (f slotFleet) configureSlots(id string, count, perNode int, extra string) {
	f.t.Helper()
	f.configure(id, "dc1", 1, extra+fmt.Sprintf("slots: {count: %d, per_node: %d}\n"+
		"child: {command: [slot-child, '${ZKELECTD_SLOT}-of-${ZKELECTD_SLOTS}'], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms}\n", count, perNode))
}

// leaders returns how many slots each node leads, and whether all slots have leaders.
func (f slotFleet) leaders(count int) (map[string]int, bool) {
	led := make(map[string]int)
	for i := range count {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		s, err := store.ReadSlot(ctx, f.session, f.paths.OfSlot(i))
		cancel()
		if err != nil || !s.Current.Readable() || s.Current.Record.State != cluster.CurrentReady || s.Current.Record.Term != s.Elected.Record.Term {
			return led, false
		}
		led[s.Current.Record.Node]++
	}
	return led, true
}

// settled waits until all slots have leaders, in the given numbers by node.
func (f slotFleet) settled(what string, count int, want map[string]int) {
	f.t.Helper()
	var led map[string]int
	f.eventually(what, func() bool {
		var all bool
		led, all = f.leaders(count)
		if !all || !f.worked(count) {
			return false
		}
		for id, n := range want {
			if led[id] != n {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprint("leaders: ", led) })
}

// worked reports whether work has run in each slot of the present epoch.
func (f slotFleet) worked(count int) bool {
	slots := make(map[int]bool)
	epoch := f.slots().Record.Epoch
	for _, s := range slotLedger(f.t, f.ledgerFile()) {
		if s.epoch == epoch {
			slots[s.slot] = true
		}
	}
	return len(slots) == count
}

func (f slotFleet) slots() cluster.Stored[cluster.Slots] {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	data, stat, err := f.session.Get(ctx, f.paths.Slots(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		f.t.Fatal(err)
	}
	return cluster.ReadSlots(f.paths.Slots(), data, stat, err == nil)
}
