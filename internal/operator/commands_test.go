package operator

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
)

// Hints use the name that a group has in the configuration, even if its root ends in another name.
func TestCommandsNameTheGroupNotItsRoot(t *testing.T) {
	p := cluster.Paths{Root: "/own/x"}
	names := func(name, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) || strings.Contains(text, "-g x") {
				t.Errorf("%s: no %s in %s", name, w, text)
			}
		}
	}

	damaged := groupWith(nil)
	damaged.Policy = cluster.ReadStored[cluster.Policy](p.Policy(), []byte("x"), cluster.Stat{}, true)
	if _, err := (Proposal{Group: "billing", Config: configured(t, "ZKELECTD_ZOOKEEPER_ROOT=/own/x")}).Next(damaged); err == nil {
		t.Error("a damaged policy was replaced")
	} else {
		names("policy", err.Error(), "'zkelectd repair policy --config /etc/zkelectd.yaml -g billing'")
	}

	s := storetest.NewServer().Connect()
	if err := store.EnsureTree(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	of := Neighbors{Group: "billing"}
	submitter := Submitter{Conn: s, Paths: p, Config: configured(t), Neighbors: of, Read: time.Second, Write: time.Second}
	crossed := func(q whatif.Question) (request.Plan, error) {
		other := q.Snapshot.Control.Record.Clone()
		other.Next(cluster.Request{By: "ann@host"})
		if _, err := s.Do(t.Context(), p.ControlTx("", q.Snapshot.Control, other)...); err != nil {
			t.Fatal(err)
		}
		return request.Request{Kind: request.KindPause, Options: request.Options{By: "bob@host"}}.Plan(q)
	}
	if _, err := submitter.Submit(t.Context(), crossed); err == nil {
		t.Error("two requests at once were accepted")
	} else {
		names("submit", err.Error(), "see 'zkelectd status -g billing'")
	}

	of.Group += "/3"
	c := NewGroupCache(of.Group, p.Root)
	c.SetSource(&Source{Session: &connected{Session: s}, Paths: p.OfSlot(3), Config: config.Config{Slots: config.Slots{Count: 3}}, Neighbors: of})
	damaged.Slot, damaged.Slots = "3", cluster.Stored[cluster.Slots]{Exists: true, Record: cluster.NewSlots(cluster.SlotSize{Count: 4, PerNode: 2}, "n1", time.Unix(1000, 0))}
	c.SetSnapshot(&damaged)
	view, err := c.Group(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names("cache", strings.Join(view.Problems, "\n"), "'zkelectd repair policy -g billing'", "'zkelectd slots 3 --per-node 3 -g billing'")

	for name, q := range map[string]func() (whatif.Question, error){
		"question": func() (whatif.Question, error) {
			return question("billing", configured(t), groupWith(nil), new(policy.Cache))
		},
		"slot question": func() (whatif.Question, error) {
			return question("billing/3", configured(t), damaged, new(policy.Cache))
		},
	} {
		if got, err := q(); err != nil || got.Options.Group != cluster.SlotName("billing", got.Snapshot.Slot) {
			t.Errorf("%s: %q, %v", name, got.Options.Group, err)
		}
	}
}
