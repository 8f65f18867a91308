package cluster

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A group with any trace of a present or former leader is not initialized (A1): each trace alone is enough.
func TestEachTraceOfUsePreventsInit(t *testing.T) {
	p := Paths{Root: "/c"}
	fresh := Snapshot{Fence: ReadFence(p.Leader(), nil, Stat{}, true)}
	fence := func(data string, version int32) Snapshot {
		return Snapshot{Fence: ReadFence(p.Leader(), []byte(data), Stat{Version: version}, true)}
	}
	elected, current := fresh, fresh
	rostered := fresh
	elected.Elected.Exists, current.Current.Exists, rostered.Roster.Exists = true, true, true
	for name, c := range map[string]struct {
		traces UsageEvidence
		want   []string
	}{
		"nothing at all":      {UsageEvidence{}, nil},
		"a new group":         {UsageEvidence{Snapshot: fresh}, nil},
		"initialized already": {UsageEvidence{Snapshot: fence(`{"v":1,"state":"RELEASED"}`, 1)}, nil},
		"one incarnation":     {UsageEvidence{Snapshot: fresh, Incarnations: []string{"a-0000000000000001-n_0000000001"}}, []string{"znode /c/election has 1 incarnations (such as a-0000000000000001-n_0000000001)"}},
		"incarnations":        {UsageEvidence{Snapshot: fresh, Incarnations: []string{"a", "b"}}, []string{"znode /c/election has 2 incarnations (such as a)"}},
		"one node":            {UsageEvidence{Snapshot: fresh, Nodes: []string{"a"}}, []string{"znode /c/nodes has 1 nodes (such as a)"}},
		"nodes":               {UsageEvidence{Snapshot: fresh, Nodes: []string{"a", "b"}}, []string{"znode /c/nodes has 2 nodes (such as a)"}},
		"a decision":          {UsageEvidence{Snapshot: elected}, []string{"znode /c/leader/elected exists"}},
		"a holder":            {UsageEvidence{Snapshot: current}, []string{"znode /c/leader/current exists"}},
		"a roster":            {UsageEvidence{Snapshot: rostered}, []string{"znode /c/roster exists"}},
		"a history":           {UsageEvidence{Snapshot: fresh, History: true}, []string{"znode /c/history exists"}},
		"a term":              {UsageEvidence{Snapshot: fence(`{"v":1,"state":"RELEASED","term":1,"node":"a"}`, 1)}, []string{"znode /c/leader holds term 1 of a, RELEASED"}},
		"no clean end":        {UsageEvidence{Snapshot: fence(`{"v":1,"state":"REVOKED","node":"a"}`, 1)}, []string{"znode /c/leader holds term 0 of a, REVOKED"}},
		"an emptied fence":    {UsageEvidence{Snapshot: fence("", 1)}, []string{"znode /c/leader is empty: not written by zkelectd"}},
		"two":                 {UsageEvidence{Snapshot: elected, History: true}, []string{"znode /c/leader/elected exists", "znode /c/history exists"}},
	} {
		err := p.InUse(c.traces)
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var used *InUseError
		if !errors.As(err, &used) || used.Root != "/c" || !slices.Equal(used.Found, c.want) || !strings.Contains(err.Error(), strings.Join(c.want, "; ")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// InitTx writes a clean, requested end, without a holder.
func TestInitTx(t *testing.T) {
	p, wall := Paths{Root: "/c"}, time.Unix(1_800_000_000, 0).UTC()
	ops := p.InitTx(Stored[Fence]{Exists: true, Stat: Stat{Version: 3}}, "ann@host", wall)
	if got := Brief(ops, plain); !slices.Equal(got, []string{"set /c/leader@3"}) {
		t.Fatalf("%q", got)
	}
	want := Fence{State: FenceReleased, Reason: "initialized by ann@host", Requested: true, Time: wall}
	want.V = FormatVersion
	if got := ReadFence(p.Leader(), ops[0].Data, Stat{}, true); got.Err != nil || !reflect.DeepEqual(got.Record, want) {
		t.Errorf("%+v, want %+v", got.Record, want)
	}
}
