package zkstore

import (
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
)

// Which groups use failsafe mode: those whose policy enables it, and those whose last leader may have been promised something.
func TestUsesFailsafe(t *testing.T) {
	promised := func(change func(*cluster.Fence)) []byte {
		f := cluster.Fence{
			Term: 3, Node: "a", Incarnation: "a-n_0000000001", State: cluster.FenceReady,
			Failsafe: &cluster.Failsafe{Key: "ka", Members: []cluster.FailsafeMember{{ID: "b", Incarnation: "b-n_0000000002", Key: "kb"}}},
		}
		change(&f)
		return cluster.Encode(&f)
	}
	enabled := cluster.Policy{}
	enabled.Failsafe.Enabled = true
	for name, c := range map[string]struct {
		fence, policy []byte
		want          bool
	}{
		"a new group":           {},
		"no promises":           {fence: promised(func(f *cluster.Fence) { f.Failsafe.Members = nil })},
		"promises":              {fence: promised(func(*cluster.Fence) {}), want: true},
		"a released leadership": {fence: promised(func(f *cluster.Fence) { f.State = cluster.FenceReleased })},
		"a veto":                {fence: promised(func(f *cluster.Fence) { f.Failsafe.Veto = "b" })},
		"a damaged fence":       {fence: []byte("{"), want: true},
		"a newer fence":         {fence: []byte(`{"v":99}`), want: true},
		"the policy":            {policy: cluster.Encode(&enabled), want: true},
		"another policy":        {policy: cluster.Encode(&cluster.Policy{})},
	} {
		p := cluster.Paths{Root: "/g"}
		s := clustertest.NewServer().Connect()
		if err := EnsureTree(t.Context(), s, p); err != nil {
			t.Fatal(err)
		}
		write := func(path string, data []byte) {
			if data == nil {
				return
			}
			kind := cluster.OpSet
			if _, _, err := s.Get(t.Context(), path, false); errors.Is(err, cluster.ErrNoNode) {
				kind = cluster.OpCreate
			}
			if _, err := s.Do(t.Context(), cluster.Op{Kind: kind, Path: path, Version: cluster.AnyVersion, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		write(p.Leader(), c.fence)
		write(p.Policy(), c.policy)
		if got, err := UsesFailsafe(t.Context(), s, p); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
