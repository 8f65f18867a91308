package store

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// Promises bind while the fence carries them, and as long as it cannot be read.
func TestPromisesBind(t *testing.T) {
	promised := func(change func(*cluster.Fence)) []byte {
		f := cluster.Fence{
			Term: 3, Node: "a", Incarnation: "a-0000000000000001-n_0000000001", State: cluster.FenceReady,
			Failsafe: &cluster.Failsafe{Key: "ka", Members: []cluster.FailsafeMember{{ID: "b", Incarnation: "b-0000000000000001-n_0000000002", Key: "kb"}}},
		}
		change(&f)
		return cluster.Encode(&f)
	}
	for name, c := range map[string]struct {
		fence []byte
		want  bool
	}{
		"a new group":           {},
		"no promises":           {fence: promised(func(f *cluster.Fence) { f.Failsafe.Members = nil })},
		"promises":              {fence: promised(func(*cluster.Fence) {}), want: true},
		"a released leadership": {fence: promised(func(f *cluster.Fence) { f.State = cluster.FenceReleased })},
		"a veto":                {fence: promised(func(f *cluster.Fence) { f.Failsafe.Veto = "b" })},
		"a damaged fence":       {fence: []byte("{"), want: true},
		"a newer fence":         {fence: []byte(`{"v":99}`), want: true},
	} {
		p := cluster.Paths{Root: "/g"}
		s := storetest.NewServer().Connect()
		if err := EnsureTree(t.Context(), s, p); err != nil {
			t.Fatal(err)
		}
		if c.fence != nil {
			if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: c.fence}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := PromisesBind(t.Context(), s, p); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
