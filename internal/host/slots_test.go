package host

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// slotted is the file of a group with slots.
func slotted(count int) string { return fmt.Sprintf("slots: {count: %d}\n%s", count, work) }

// initializeSlots creates the slots of a group, so that their first leaders need not wait.
func initializeSlots(t *testing.T, root string, count int) {
	t.Helper()
	conn := initialSession(t)
	for i := range count {
		if err := store.Init(t.Context(), conn, cluster.Paths{Root: root}.OfSlot(i), "the test"); err != nil {
			t.Fatal(err)
		}
	}
}

// setSlots changes the number of slots while the host does not take part in the group.
func (f *fleetOf) setSlots(name string, count int) {
	f.t.Helper()
	f.remove(name)
	f.Reload()
	wait(f.t, "the group is removed", func() bool { return slices.Equal(f.names(), []string{"g0"}) })
	conn, p := initialSession(f.t), cluster.Paths{Root: f.base + "/" + name}
	wait(f.t, "the slots are changed", func() bool {
		read, err := store.ReadSlots(f.t.Context(), conn, p, false)
		if err != nil {
			f.t.Fatal(err)
		}
		_, err = store.SetSlots(f.t.Context(), conn, p, read, read.Record.Changed(cluster.SlotSize{Count: count, PerNode: count}, "the test", "", time.Now()))
		return err == nil
	})
	f.write(name, slotted(2))
	f.Reload()
}

func (f *fleetOf) names() []string {
	var all []string
	for _, g := range f.Groups() {
		all = append(all, g.Name())
	}
	return all
}

// Each slot is shown as a separate group, next to those without slots. How many there are may change while the host does not take part, and
// disturbs no other group.
func TestSlotsAreGroups(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 1)
	f.until("g0", "leads", status.Daemon.Leads)
	kept := f.view("g0")
	initializeSlots(t, base+"/ingest", 2)
	f.write("ingest", slotted(2))
	f.Reload()
	leads := func(count int) {
		t.Helper()
		for i := range count {
			f.until(fmt.Sprint("ingest/", i), fmt.Sprintf("leads one of %d slots", count), status.Daemon.Leads)
		}
		var want []string
		for i := range count {
			want = append(want, fmt.Sprint("ingest/", i))
		}
		wait(t, "the groups", func() bool { return slices.Equal(f.names(), append([]string{"g0"}, want...)) }, func() string { return fmt.Sprint(f.names()) })
	}
	leads(2)
	first, second := f.view("ingest/0"), f.view("ingest/1")
	if first.Incarnation == "" || first.Incarnation != second.Incarnation {
		t.Errorf("the slots have the incarnations %q and %q", first.Incarnation, second.Incarnation)
	}
	f.setSlots("ingest", 3)
	leads(3)
	if v := f.view("ingest/0"); v.Incarnation == first.Incarnation {
		t.Error("the group has not registered again")
	}
	f.until("ingest/0", "shows that the file differs", func(v status.Daemon) bool { return strings.Contains(v.SlotsDrift, "zkelectd slots 2") })
	f.setSlots("ingest", 1)
	leads(1)

	f.remove("ingest")
	f.Reload()
	wait(t, "the group is removed", func() bool { return slices.Equal(f.names(), []string{"g0"}) })
	conn := initialSession(t)
	for _, path := range []string{base + "/ingest/nodes", base + "/ingest/election"} {
		wait(t, path+" is empty after LEAVE", func() bool {
			names, _, err := conn.Children(t.Context(), path, false)
			return err == nil && len(names) == 0
		})
	}
	for i := range 3 {
		p := cluster.Paths{Root: base + "/ingest"}.OfSlot(i)
		data, stat, err := conn.Get(t.Context(), p.Leader(), false)
		if fence := cluster.ReadFence(p.Leader(), data, stat, err == nil); fence.Record.State != cluster.FenceReleased {
			t.Errorf("slot %d has the fence %+v", i, fence.Record)
		}
	}
	if v := f.view("g0"); v.Incarnation != kept.Incarnation || v.Term != kept.Term {
		t.Errorf("g0 was disturbed: %+v", v)
	}
}

// Hosts that disagree whether a group has slots would do the same work twice: the second one is refused.
func TestHostsMustAgreeWhetherAGroupHasSlots(t *testing.T) {
	base := fresh()
	a, b := runGroups(t, base, "a", 1), runGroups(t, base, "b", 1)
	initialize(t, base+"/plain")
	initializeSlots(t, base+"/slotted", 1)
	a.write("plain", work)
	a.write("slotted", slotted(1))
	a.Reload()
	a.until("plain", "leads", status.Daemon.Leads)
	a.until("slotted/0", "leads", status.Daemon.Leads)
	b.write("plain", slotted(2))
	b.write("slotted", work)
	b.Reload()
	for name, reason := range map[string]string{"plain/0": "with one leader", "plain/1": "with one leader", "slotted": "with slots"} {
		b.until(name, "is refused", func(v status.Daemon) bool {
			return v.Membership == status.MembershipRefused && strings.Contains(v.MembershipReason, reason)
		})
	}
	for _, name := range []string{"plain", "slotted/0"} {
		if v := a.view(name); !v.Leads() {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// The loops of all slots share a registration: if one of them panics, the whole instance is abandoned, and no other group.
func TestAPanicInASlotAbandonsAllSlots(t *testing.T) {
	base := fresh()
	var panicked atomic.Bool
	log := slog.New(groupLog{see: func(group string, r slog.Record) {
		if group == "ingest/1" && r.Message == "now leading" && !panicked.Swap(true) {
			panic("the test")
		}
	}})
	f := runGroups(t, base, "a", 1, func(o *Options) { o.Log = log })
	f.until("g0", "leads", status.Daemon.Leads)
	kept := f.view("g0")
	initializeSlots(t, base+"/ingest", 2)
	f.write("ingest", slotted(2))
	f.Reload()
	for _, name := range []string{"ingest/0", "ingest/1"} {
		f.until(name, "leads with a new instance", func(v status.Daemon) bool { return v.Leads() && strings.HasSuffix(v.Incarnation, "-n_0000000001") })
	}
	if v := f.view("g0"); v.Incarnation != kept.Incarnation || v.Term != kept.Term || f.Totals().Sessions != 1 {
		t.Errorf("g0 was disturbed: %+v", v)
	}
}
