package zkstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
)

// ledGroup creates a group whose last leader has ended in the state, with a pause and a policy.
func ledGroup(t *testing.T, conn cluster.ReadWriter, base, name string, state cluster.FenceState) cluster.Paths {
	t.Helper()
	p := cluster.Paths{Root: cluster.IdentityPath(base, name)}
	ensures(t, conn, base, name, p.Root)
	if err := EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	fence := cluster.Fence{Term: 7, Node: "a", Incarnation: "a-0000000000000001-n_0000000000", State: state, LeaseWait: cluster.Duration(3 * time.Second)}
	put(t, conn, p.Leader(), string(cluster.Encode(&fence)))
	put(t, conn, p.Elected(), string(cluster.Encode(&cluster.Elected{Term: 8, Node: "a", Incarnation: "a-0000000000000001-n_0000000000"})))
	put(t, conn, p.Policy(), `{"v":1,"type":"first","revision":4}`)
	put(t, conn, p.Control(), `{"v":1,"last":5,"pause":{"id":5,"by":"ann"}}`)
	put(t, conn, p.Roster(), `{"v":1,"nodes":[{"id":"a","site":"dc1","first_seen":"2026-05-04T12:00:00Z"}]}`)
	put(t, conn, p.History(), string(cluster.EncodeHistory(&cluster.History{Terms: []cluster.PastTerm{{Term: 7, Node: "a"}}})))
	return p
}

func relocate(t *testing.T, conn cluster.ReadWriter, from, to cluster.Paths, byName string) cluster.Snapshot {
	t.Helper()
	if _, err := RelocateGroup(t.Context(), conn, from, to, byName, "bob"); err != nil {
		t.Fatalf("from %s to %s: %v", from.Root, to.Root, err)
	}
	snap, err := ReadAll(t.Context(), conn, to, false)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// checkAbandoned fails unless a daemon that registers in an old root nevertheless cannot lead there: an incarnation may even have
// the name of the last one.
func checkAbandoned(t *testing.T, conn registrar, p cluster.Paths) {
	t.Helper()
	if err := EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	if in, err := Register(t.Context(), conn, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)}); err != nil || in.Name != "a-0000000000000001-n_0000000000" {
		t.Fatal(in, err)
	}
	snap, err := ReadAll(t.Context(), conn, p, false)
	if pause := snap.Control.Record.Pause; err != nil || pause == nil || !pause.Hard || pause.MovedTo == "" {
		t.Errorf("control: %+v, %v", snap.Control.Record, err)
	}
	if snap.Elected.Exists {
		t.Errorf("elected: %+v", snap.Elected.Record)
	}
}

func TestRelocateAGroupAndBack(t *testing.T) {
	for _, state := range []cluster.FenceState{cluster.FenceReleased, cluster.FenceReady, cluster.FenceHeld, cluster.FenceUnclean, cluster.FenceRevoked} {
		server := clustertest.NewServer()
		conn := server.Connect()
		old := ledGroup(t, conn, "/", "billing", state)
		next := cluster.Paths{Root: "/zkelectd/billing"}
		snap := relocate(t, conn, old, next, "")
		f := snap.Fence.Record
		if f.State != cluster.FenceRevoked || f.Term != 8 || f.LeaseWait != cluster.Duration(3*time.Second) || f.Incarnation != "" || snap.Elected.Exists {
			t.Errorf("%s: fence %+v, elected %v", state, f, snap.Elected.Exists)
		}
		if c := snap.Control.Record; snap.Policy.Record.Revision != 4 || c.Last != 5 || c.Pause == nil || c.Pause.Hard {
			t.Errorf("%s: policy %+v, control %+v", state, snap.Policy.Record, c)
		}
		if data, _, err := readOptional(t.Context(), conn, next.Roster()); err != nil || !strings.Contains(string(data), `"id":"a"`) {
			t.Errorf("the roster: %q, %v", data, err)
		}
		if data, _, err := readOptional(t.Context(), conn, next.History()); err != nil || data == nil {
			t.Errorf("%s: history: %q, %v", state, data, err)
		}
		ensures(t, conn, "/zkelectd", "billing", next.Root)
		refuses(t, conn, "/", "billing", old.Root, "/zkelectd/billing")
		late := server.Connect()
		checkAbandoned(t, late, old)
		if _, err := RelocateGroup(t.Context(), conn, next, old, "", "bob"); !hasMembers(err, "a", "a-0000000000000001-n_0000000000") {
			t.Errorf("%s: back to a root with a member: %v", state, err)
		}
		late.Close(t.Context())

		snap = relocate(t, conn, next, old, "")
		if c := snap.Control.Record; snap.Fence.Record.State != cluster.FenceRevoked || snap.Fence.Record.Term != 8 || c.Pause == nil || c.Pause.Hard || snap.Elected.Exists {
			t.Errorf("%s: back: fence %+v, control %+v", state, snap.Fence.Record, c)
		}
		ensures(t, conn, "/", "billing", old.Root)
		refuses(t, conn, "/zkelectd", "billing", next.Root, "/billing")
		checkAbandoned(t, server.Connect(), next)
	}
}

func hasMembers(err error, names ...string) bool {
	var m *MembersError
	return errors.As(err, &m) && slices.Equal(m.Members, names)
}

// The record of the name follows, and a group with members, or one that joins in the meantime, is refused.
func TestRelocateANamedGroup(t *testing.T) {
	server := clustertest.NewServer()
	conn := server.Connect()
	old := ledGroup(t, conn, "/zkelectd", "billing", cluster.FenceReleased)
	other := cluster.Paths{Root: "/elsewhere"}
	member := server.Connect()
	if _, err := Register(t.Context(), member, old, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := RelocateGroup(t.Context(), conn, old, other, old.Root, "bob"); !hasMembers(err, "a", "a-0000000000000001-n_0000000000") {
		t.Errorf("with a member: %v", err)
	}
	member.Close(t.Context())
	joins := &interrupted{conn, old.Election(), 2, func() {
		if _, err := Register(t.Context(), server.Connect(), old, cluster.Node{ID: "b", Instance: cluster.NewInstance(1)}); err != nil {
			t.Fatal(err)
		}
	}}
	if err := relocateOn(t, joins, old, other); !hasMembers(err, "b", "b-0000000000000001-n_0000000001") {
		t.Errorf("with a member that joins: %v", err)
	}
	if _, _, err := conn.Get(t.Context(), other.Control(), false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the refused move wrote the requests: %v", err)
	}
	ensures(t, conn, "/zkelectd", "billing", old.Root)

	conn = clustertest.NewServer().Connect()
	old = ledGroup(t, conn, "/zkelectd", "billing", cluster.FenceReleased)
	second := cluster.Paths{Root: "/second"}
	relocate(t, conn, old, other, old.Root)
	relocate(t, conn, other, second, old.Root)
	if g, err := FindGroup(t.Context(), conn, "/zkelectd", "billing"); err != nil || g.Root != second.Root {
		t.Errorf("%+v, %v", g, err)
	}
	ensures(t, conn, "/zkelectd", "billing", second.Root)
	refuses(t, conn, "/zkelectd", "billing", other.Root, "/second")
}

// A daemon may join, lead and leave while the group is moved. Its term is not used a second time.
func TestRelocateAGroupThatLeadsMeanwhile(t *testing.T) {
	conn := clustertest.NewServer().Connect()
	old := ledGroup(t, conn, "/", "billing", cluster.FenceReleased)
	leads := &interrupted{conn, old.Election(), 2, func() {
		put(t, conn, old.Leader(), string(cluster.Encode(&cluster.Fence{Term: 9, Node: "b", State: cluster.FenceReleased})))
	}}
	if err := relocateOn(t, leads, old, cluster.Paths{Root: "/next"}); err != nil {
		t.Fatal(err)
	}
	if snap, err := ReadAll(t.Context(), conn, cluster.Paths{Root: "/next"}, false); err != nil || snap.Fence.Record.Term != 9 {
		t.Errorf("%+v, %v", snap.Fence.Record, err)
	}
}

func relocateOn(t *testing.T, conn cluster.ReadWriter, from, to cluster.Paths) error {
	t.Helper()
	_, err := RelocateGroup(t.Context(), conn, from, to, "", "bob")
	return err
}

func TestRelocationsThatAreRefused(t *testing.T) {
	conn := clustertest.NewServer().Connect()
	old := ledGroup(t, conn, "/", "billing", cluster.FenceReleased)
	used := ledGroup(t, conn, "/", "mail", cluster.FenceReleased)
	empty := cluster.Paths{Root: "/empty"}
	ensures(t, conn, "/", "empty", empty.Root)
	newer := cluster.Paths{Root: "/newer"}
	put(t, conn, newer.Root, `{"v":2,"root":"/newer"}`)
	below := cluster.Paths{Root: "/billing/below"}
	for _, c := range []struct {
		from, to cluster.Paths
		want     string
	}{
		{old, old, "the root of the group is /billing already"},
		{old, used, "the group /mail is in use, or has been"},
		{old, below, "znode /billing belongs to a group"},
		{old, newer, "upgrade this host"},
		{empty, cluster.Paths{Root: "/x"}, "never had a leader"},
	} {
		if err := relocateOn(t, conn, c.from, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %s to %s: %v, want %q", c.from.Root, c.to.Root, err, c.want)
		}
	}
	relocate(t, conn, old, cluster.Paths{Root: "/next"}, "")
	if err := relocateOn(t, conn, old, cluster.Paths{Root: "/x"}); err == nil || !strings.Contains(err.Error(), "was moved to /next already") {
		t.Errorf("a second time: %v", err)
	}
}
