package cluster

import (
	"slices"
	"testing"
	"time"
)

// Each check closes a hole (docs/protocol.md, Transactions): this table keeps checks from being dropped.
func TestTransactionsCarryEveryCheck(t *testing.T) {
	p := Paths{Root: "/c"}
	snap := Snapshot{Self: Incarnation{Name: "n1-0000000000000001-n_0000000001", ID: "n1"}}
	snap.Elected = Stored[Elected]{Exists: true, Stat: Stat{Version: 3}}
	snap.Fence.Stat.Version, snap.Current.Stat.Version = 4, 5
	h := HeldVersions{Self: snap.Self.Name, Elected: 3, Fence: 4, Current: 5}
	snap.Fence.Exists = true
	fresh, bound, held := snap, snap, snap
	held.Current.Exists = true
	held.Fence.Record.LeaseZnode = "/.leases/n9-1"
	gone := held
	gone.Current.Exists = false
	bound.Fence.Record.Failsafe = &Failsafe{}
	fresh.Elected = Stored[Elected]{}
	heir := snap
	heir.Heir = Stored[HeirRecord]{Exists: true, Stat: Stat{Version: 6}}
	six := Stat{Version: 6}
	self, other := "check /c/election/n1-0000000000000001-n_0000000001@-1", "check /c/election/n2-0000000000000001-n_0000000002@-1"
	for name, c := range map[string]struct {
		ops  []Op
		want []string
	}{
		"REGISTER":    {p.RegisterTx(Node{ID: "n1", Instance: NewInstance(1)}), []string{"create /c/nodes/n1@0 ephemeral", "create /c/election/n1-0000000000000001-n_@0 ephemeral sequential"}},
		"first ELECT": {p.ElectTx(fresh, Elected{Incarnation: "n2-0000000000000001-n_0000000002"}, &Fence{}), []string{self, other, "set /c/leader@4", "create /c/leader/elected@0"}},
		"ELECT":       {p.ElectTx(snap, Elected{Incarnation: "n2-0000000000000001-n_0000000002"}, nil), []string{self, other, "check /c/leader@4", "set /c/leader/elected@3"}},
		"TAKE": {p.TakeTx(held, LeaseZnodeSeen{Znode: "/.leases/n9-1", Stat: Stat{Version: 9}}, Elected{Incarnation: "n2-0000000000000001-n_0000000002"}),
			[]string{self, other, "set /c/leader@4", "set /c/leader/elected@3", "check /.leases/n9-1@9", "delete /c/leader/current@5"}},
		"TAKE without current": {p.TakeTx(gone, LeaseZnodeSeen{Znode: "/.leases/n9-1", Stat: Stat{Version: 9}}, Elected{Incarnation: "n2-0000000000000001-n_0000000002"}),
			[]string{self, other, "set /c/leader@4", "set /c/leader/elected@3", "check /.leases/n9-1@9"}},
		"SILENCE": {p.SilenceTx(held, LeaseZnodeSeen{Znode: "/.leases/n9-1", Stat: Stat{Version: 9}}, held.SilentFence(nil, "", time.Time{})),
			[]string{self, "check /c/leader/elected@3", "set /c/leader@4", "delete /c/leader/current@5", "check /.leases/n9-1@9"}},
		"a lease znode": {LeaseZnodeTx("/.leases/n9-1"), []string{"create /.leases/n9-1@0 ephemeral", "set /.leases/n9-1@0"}},
		"ACQUIRE":       {p.AcquireTx(snap, Fence{}, Current{}), []string{self, "check /c/leader/elected@3", "set /c/leader@4", "create /c/leader/current@0 ephemeral"}},
		"READY":         {p.ReadyTx(h, Fence{}, Current{}), []string{self, "check /c/leader/elected@3", "set /c/leader@4", "set /c/leader/current@5"}},
		"RENEW":         {p.RenewTx(h), []string{self, "check /c/leader/elected@3", "check /c/leader@4", "check /c/leader/current@5"}},
		"SETM":          {p.SetMembersTx(h, Fence{}), []string{self, "check /c/leader/elected@3", "set /c/leader@4", "check /c/leader/current@5"}},
		"VETO":          {p.VetoTx(bound, "n1"), []string{self, "set /c/leader@4"}},
		"the probe":     {p.ProbeTx(h.Self), []string{self}},
		"RELEASE":       {p.ReleaseTx(h, Fence{State: FenceReleased}), []string{self, "set /c/leader@4", "delete /c/leader/current@5"}},
		"an unclean":    {p.ReleaseTx(h, Fence{State: FenceUnclean}), []string{self, "set /c/leader@4", "delete /c/leader/current@5"}},
		"history":       {p.HistoryTx(snap.Self.Name, Stat{Version: 6}, true, History{}), []string{self, "set /c/history@6"}},
		"its first":     {p.HistoryTx(snap.Self.Name, Stat{}, false, History{}), []string{self, "create /c/history@0"}},
		"first HEIR": {p.HeirTx(snap, HeirRecord{Heir: Heir{Incarnation: "n2-0000000000000001-n_0000000002"}}),
			[]string{self, other, "check /c/leader@4", "check /c/leader/elected@3", "create /c/heir@0"}},
		"HEIR, nobody": {p.HeirTx(heir, HeirRecord{}),
			[]string{self, "check /c/leader@4", "check /c/leader/elected@3", "set /c/heir@6"}},
		"control": {p.ControlTx(snap.Self.Name, Stored[Control]{Exists: true, Stat: six}, Control{}),
			[]string{self, "set /c/control@6"}},
		"first control": {p.ControlTx(snap.Self.Name, Stored[Control]{}, Control{}),
			[]string{self, "create /c/control@0"}},
		"an operator's": {p.ControlTx("", Stored[Control]{Exists: true, Stat: six}, Control{}),
			[]string{"set /c/control@6"}},
		"an operator's first": {p.ControlTx("", Stored[Control]{Stat: Stat{Version: 9}}, Control{}),
			[]string{"create /c/control@0"}},
		"roster": {p.OfSlot(3).RosterTx(snap.Self.Name, Stored[Roster]{Exists: true, Stat: six}, Roster{}),
			[]string{self, "set /c/roster@6"}},
		"a member's roster": {p.RosterTx("", Stored[Roster]{}, Roster{}), []string{"create /c/roster@0"}},
		"failsafe keys": {p.FailsafeKeysTx(Stored[FailsafeKeys]{Exists: true, Stat: six}, FailsafeKeys{}),
			[]string{"set /c/failsafe-keys@6"}},
		"first failsafe keys": {p.FailsafeKeysTx(Stored[FailsafeKeys]{}, FailsafeKeys{}),
			[]string{"create /c/failsafe-keys@0"}},
		"acts of fencing": {p.FencingsTx(Stored[Fencings]{Exists: true, Stat: six}, Fencings{}),
			[]string{"set /c/fencings@6"}},
		"first act of fencing": {p.FencingsTx(Stored[Fencings]{}, Fencings{}), []string{"create /c/fencings@0"}},
		"a roll call":          {p.RollCallTx(snap.Self.Name, Stored[RollCall]{Exists: true, Stat: six}, RollCall{}), []string{self, "set /c/rollcall@6"}},
		"the first roll call":  {p.RollCallTx(snap.Self.Name, Stored[RollCall]{}, RollCall{}), []string{self, "create /c/rollcall@0"}},
		"a node's record":      {p.NodeTx(snap.Self.Name, 6, Node{ID: "n1"}), []string{self, "set /c/nodes/n1@6"}},
		"FINAL":                {p.FinalTx(h, Fence{State: FenceReleased}), []string{"delete /c/election/n1-0000000000000001-n_0000000001@-1", "set /c/leader@4", "delete /c/leader/current@5"}},
		"REVOKE":               {p.RevokeTx(snap, Fence{}), []string{self, "check /c/leader/elected@3", "set /c/leader@4", "delete /c/leader/current@5"}},
	} {
		got := Brief(c.ops, func(op Op) string {
			s := plain(op)
			if op.Ephemeral {
				s += " ephemeral"
			}
			if op.Sequential {
				s += " sequential"
			}
			return s
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}
