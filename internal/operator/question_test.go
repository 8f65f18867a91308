package operator

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
)

// Nothing is planned while it is not known which slots a group has: a drain would find no slot to move.
func TestRequestsWithoutTheRecordOfSlots(t *testing.T) {
	p := cluster.Paths{Root: "/own/x"}
	s := storetest.NewServer().Connect()
	submitter := Submitter{Conn: s, Paths: p, Slots: true, Config: configured(t), Neighbors: Neighbors{Group: "x"},
		Read: time.Second, Write: time.Second}
	drain := request.Request{Kind: request.KindDrain, Node: "n1", Options: request.Options{By: "bob@host"}}
	refused := func(want string) {
		t.Helper()
		plan, err := submitter.Submit(t.Context(), drain.Plan)
		if err == nil || !strings.Contains(err.Error(), p.Slots()) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %q, want %q", err, plan.Messages, want)
		}
	}
	if err := store.EnsureTree(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), p.RegisterTx(cluster.Node{ID: "n1", Site: "dc1"})...); err != nil {
		t.Fatal(err)
	}
	refused("does not exist: the elector writes it again; if no daemon runs, start one")
	if _, err := store.EnsureSlots(t.Context(), s, p, cluster.SlotSize{Count: 2, PerNode: 2}, "n1"); err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{
		`{"v":1,`:  "the elector writes it again; if no daemon runs, start one",
		`{"v":99}`: "until then no slot gets another leader; leaders keep working",
	} {
		damage := cluster.Op{Kind: cluster.OpSet, Path: p.Slots(), Version: cluster.AnyVersion, Data: []byte(data)}
		if _, err := s.Do(t.Context(), damage); err != nil {
			t.Fatal(err)
		}
		refused(want)
	}
}
