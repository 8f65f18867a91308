package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// flapping is a session in which another write comes before the first LEAVEs. Each read takes a second.
type flapping struct {
	*storetest.Session
	conflicts int

	mu    sync.Mutex
	reads []string
}

func (*flapping) Sync(context.Context) error { return nil }

func (f *flapping) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	f.mu.Lock()
	f.reads = append(f.reads, path)
	f.mu.Unlock()
	<-time.After(time.Second)
	return f.Session.Get(ctx, path, watch)
}

func (f *flapping) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	if f.conflicts > 0 {
		f.conflicts--
		return nil, &cluster.TxError{Err: cluster.ErrBadVersion}
	}
	return f.Session.Do(ctx, ops...)
}

// slotted returns a session, and a group with so many slots.
func slotted(t *testing.T, count int) (*flapping, cluster.Paths) {
	t.Helper()
	f, p := &flapping{Session: storetest.NewServer().Connect()}, cluster.Paths{Root: "/g"}
	for i := range count {
		if err := Init(t.Context(), f.Session, p.OfSlot(i), "the test"); err != nil {
			t.Fatal(err)
		}
	}
	return f, p
}

// Slots that change all the time must not make LEAVE last until it ends the session: it reads them at once, and does not pause after a
// conflict.
func TestLeaveOfManySlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, conflicts = 40, 5
		f, p := slotted(t, count)
		defer f.Close(context.Background())
		self, err := Register(t.Context(), f.Session, p.OfSlot(0), cluster.Node{ID: "n1", Instance: cluster.NewInstance(1)})
		if err != nil {
			t.Fatal(err)
		}
		d := cluster.Departure{ID: "n1", Self: self.Name, Reason: "the test"}
		for i := range count {
			d.Slots = append(d.Slots, cluster.DepartingSlot{SlotState: cluster.SlotState{Slot: fmt.Sprint(i)}})
		}
		f.conflicts = conflicts
		began := time.Now()
		if err := Leave(t.Context(), f, p, d); err != nil {
			t.Fatal(err)
		}
		// The decision, the fence and current of all slots, the node, and the incarnation; after the last LEAVE, no incarnation is left.
		if took, want := time.Since(began), (conflicts+1)*5*time.Second+4*time.Second; took != want {
			t.Errorf("it took %s, not %s", took, want)
		}
	})
}

// Of a slot, the decision is read before the fence: see LEAVE.
func TestReadSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := slotted(t, 40)
		defer f.Close(context.Background())
		began := time.Now()
		all, err := readSlots(t.Context(), f, p, 3)
		if took := time.Since(began); err != nil || took != 3*time.Second {
			t.Errorf("%v after %s", err, took)
		}
		if len(all) != 40 || all[0].Slot != "0" || all[39].Slot != "39" || !all[39].Fence.Readable() {
			t.Errorf("%d slots: %+v", len(all), all)
		}
		p = p.OfSlot(7)
		if elected, fence := slices.Index(f.reads, p.Elected()), slices.Index(f.reads, p.Leader()); elected < 0 || elected > fence {
			t.Errorf("the decision was read at %d, the fence at %d", elected, fence)
		}
	})
}
