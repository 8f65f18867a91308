package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// retired returns a session, and the group "old" with a root of its own, whose last leader has released.
func retired(t *testing.T) (s *zk.Session, base string, p cluster.Paths) {
	t.Helper()
	s = open(t, zk.Options{})
	base = fmt.Sprintf("/test%d", roots.Add(1))
	p = cluster.Paths{Root: base + "-old"}
	if err := EnsureIdentity(t.Context(), s, base, "old", cluster.Identity{Root: p.Root, Kind: cluster.KindSingle}); err != nil {
		t.Fatal(err)
	}
	if err := EnsureTree(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	do(t, s, fenceOp(p, cluster.Fence{Term: 7, Node: "n1", State: cluster.FenceReleased}),
		create(p.Elected(), `{"v":1,"term":7,"node":"n1"}`), create(p.Policy(), `{"v":1}`), create(p.History(), ""))
	return s, base, p
}

func fenceOp(p cluster.Paths, f cluster.Fence) cluster.Op {
	return cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&f)}
}

func create(znode, data string) cluster.Op {
	return cluster.Op{Kind: cluster.OpCreate, Path: znode, Data: []byte(data)}
}

func remains(t *testing.T, s *zk.Session, base string, p cluster.Paths) cluster.Remains {
	t.Helper()
	r, err := ReadRemains(t.Context(), s, base, "old", p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gone reports whether the znode does not exist.
func gone(t *testing.T, s *zk.Session, znode string) bool {
	t.Helper()
	_, _, err := s.Get(t.Context(), znode, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		t.Fatal(err)
	}
	return err != nil
}

// All of a retired group is deleted, with the record of its name, and nothing above or beside it.
func TestDeleteRemains(t *testing.T) {
	s, base, p := retired(t)
	if err := EnsureIdentity(t.Context(), s, base, "other", cluster.Identity{Root: base + "/other", Kind: cluster.KindSingle}); err != nil {
		t.Fatal(err)
	}
	r := remains(t, s, base, p)
	if text := strings.Join(r.Describe(), "\n"); !strings.Contains(text, p.Root+" and the 6 znodes below it\n"+base+"/old, the record of its root\nthe history: n1 led in term 7") {
		t.Error(text)
	}
	if err := DeleteRemains(t.Context(), s, r); err != nil {
		t.Fatal(err)
	}
	if !gone(t, s, p.Root) || !gone(t, s, base+"/old") || gone(t, s, base+"/other") {
		t.Error("not what was to be deleted")
	}
	if r := remains(t, s, base, p); len(r.Znodes) > 0 || r.Name != nil {
		t.Errorf("there remains %+v", r)
	}
	if _, err := ReadRemains(t.Context(), s, base, "", cluster.Paths{Root: path.Dir(base)}); err == nil {
		t.Error("the root of all znodes is taken for a group")
	}
	if _, err := ReadRemains(t.Context(), s, base, "", cluster.Paths{Root: base}); err == nil || !strings.Contains(err.Error(), "is not the root of a group") {
		t.Error(err)
	}
}

// A group with slots is deleted with all of them, those that are no longer counted included.
func TestDeleteRemainsOfSlots(t *testing.T) {
	s := open(t, zk.Options{})
	base := fmt.Sprintf("/test%d", roots.Add(1))
	p := cluster.Paths{Root: base + "/old"}
	if err := EnsureIdentity(t.Context(), s, base, "old", cluster.Identity{Root: p.Root, Kind: cluster.KindSlots}); err != nil {
		t.Fatal(err)
	}
	initialize := func(i int) {
		if err := Init(t.Context(), s, p.OfSlot(i), "the test"); err != nil {
			t.Error(err)
		}
	}
	initialize(0) // what all slots share
	var all sync.WaitGroup
	for i := 1; i < cluster.MaxSlots; i++ {
		all.Go(func() { initialize(i) })
	}
	all.Wait()
	next := cluster.NewSlots(cluster.SlotSize{Count: cluster.MaxSlots - 1, PerNode: 1}, "the test", time.Now())
	if err := DoSplit(t.Context(), s, p, p.SlotsTx("", cluster.Stored[cluster.Slots]{Exists: true, Err: cluster.ErrNoSlots}, next)); err != nil {
		t.Fatal(err)
	}
	led := cluster.Fence{Term: 7, Node: "n1", State: cluster.FenceReady}
	last := p.OfSlot(cluster.MaxSlots - 1)
	do(t, s, fenceOp(last, led), create(last.History(), ""), fenceOp(p.OfSlot(5), led))
	r := remains(t, s, base, p)
	if err := DeleteRemains(t.Context(), s, r); err == nil || !strings.Contains(err.Error(), p.OfSlot(5).Leader()+": n1 has not released") {
		t.Errorf("slot 5 is led: %v", err)
	}
	led.State = cluster.FenceReleased
	do(t, s, fenceOp(p.OfSlot(5), led))
	if err := DeleteRemains(t.Context(), s, remains(t, s, base, p)); err != nil || !gone(t, s, p.Root) {
		t.Error(err)
	}
}

// Nothing is deleted while the group has a member, while work may still be running, or if it has a foreign znode.
func TestRemainsThatMustStay(t *testing.T) {
	failsafe := &cluster.Failsafe{Key: "k", Members: []cluster.FailsafeMember{{ID: "n2", Key: "k2"}}}
	for name, c := range map[string]struct {
		change func(t *testing.T, s *zk.Session, p cluster.Paths)
		want   string
	}{
		"a member": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			if _, err := Register(t.Context(), s, p, cluster.Node{ID: "n3", Instance: cluster.NewInstance(1)}); err != nil {
				t.Fatal(err)
			}
		}, "these daemons are in the group: n3"},
		"a leader's current": {func(t *testing.T, s *zk.Session, p cluster.Paths) { do(t, s, create(p.Current(), "{}")) }, "/leader/current exists"},
		"no release": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, fenceOp(p, cluster.Fence{Term: 7, Node: "n1", State: cluster.FenceReady}))
		}, "n1 has not released leadership properly in term 7 (READY)"},
		"a host to be fenced": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, fenceOp(p, cluster.Fence{Term: 7, Node: "n1", State: cluster.FenceUnclean}))
		}, "a host may have to be fenced"},
		"promises": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, fenceOp(p, cluster.Fence{Term: 7, Node: "n1", State: cluster.FenceReady, Failsafe: failsafe}))
		}, "members that have promised"},
		"no known leader": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, fenceOp(p, cluster.Fence{Term: 7, State: cluster.FenceRevoked}))
		}, "it is not known whether a leader's work still runs"},
		"no fence": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte{}})
		}, "missing or damaged"},
		"a newer fence": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte(`{"v":99}`)})
		}, "99"},
		"the session of a member": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, create(cluster.LeaseZnodes(p.Root), ""))
			if _, err := CreateLeaseZnode(t.Context(), s, p.Root, "n-4"); err != nil {
				t.Fatal(err)
			}
		}, "these daemons are in the group: n-4"},
		"a foreign znode": {func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, create(p.Root+"/app", ""), create(p.Root+"/app/below", ""))
		}, "/app is none of a group"},
	} {
		t.Run(name, func(t *testing.T) {
			s, base, p := retired(t)
			c.change(t, s, p)
			if err := DeleteRemains(t.Context(), s, remains(t, s, base, p)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if gone(t, s, p.History()) {
				t.Error("something was deleted")
			}
		})
	}
}

// A daemon that comes after the group was read makes the deletion fail, whatever it has done.
func TestRemainsThatChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *zk.Session, p cluster.Paths){
		"registered": func(t *testing.T, s *zk.Session, p cluster.Paths) {
			if _, err := Register(t.Context(), s, p, cluster.Node{ID: "n3", Instance: cluster.NewInstance(1)}); err != nil {
				t.Fatal(err)
			}
		},
		"elected": func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, cluster.Op{Kind: cluster.OpSet, Path: p.Elected(), Version: 0, Data: []byte(`{"v":1,"term":8,"node":"n3"}`)})
		},
		"acquired": func(t *testing.T, s *zk.Session, p cluster.Paths) {
			do(t, s, fenceOp(p, cluster.Fence{Term: 8, Node: "n3", State: cluster.FenceHeld}))
		},
		"a request": func(t *testing.T, s *zk.Session, p cluster.Paths) { do(t, s, create(p.Control(), `{"v":1}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, base, p := retired(t)
			r := remains(t, s, base, p)
			change(t, s, p)
			err := DeleteRemains(context.WithoutCancel(t.Context()), s, r)
			if !errors.Is(err, cluster.ErrNotEmpty) && !errors.Is(err, cluster.ErrBadVersion) {
				t.Error(err)
			}
			if gone(t, s, p.History()) || gone(t, s, base+"/old") {
				t.Error("something was deleted")
			}
		})
	}
}
