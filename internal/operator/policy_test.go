package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/request"
)

func configured(t *testing.T, env ...string) config.Config {
	t.Helper()
	c, err := config.Load(config.Sources{Env: append(env, "ZKELECTD_NODE_ID=n1")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// groupWith returns a group of two members with a policy in force, nil for none.
func groupWith(inForce *cluster.Policy) cluster.Snapshot {
	var s cluster.Snapshot
	for i, id := range []string{"a", "b"} {
		s.Members = append(s.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id + "-1", ID: id, Seq: int32(i)},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1", Priority: 7}},
		})
	}
	if inForce != nil {
		s.Policy = cluster.Stored[cluster.Policy]{Exists: true, Record: *inForce}
	}
	return s
}

func TestProposalRevision(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	first := configured(t, "ZKELECTD_POLICY_TYPE=first")
	other := configured(t, "ZKELECTD_POLICY_TYPE=node-id")
	inForce := &cluster.Policy{Revision: 7, Rules: first.Rules(), By: "ann@host", Time: at}
	for name, c := range map[string]struct {
		inForce  *cluster.Policy
		config   config.Config
		revision int64
		by       string
	}{
		"the first one": {nil, first, 1, "bob@host"},
		"the same":      {inForce, first, 7, "ann@host"},
		"another":       {inForce, other, 8, "bob@host"},
	} {
		for _, force := range []bool{false, true} {
			w := Proposal{Config: c.config, By: "bob@host", Force: force}
			next, err := w.Next(groupWith(c.inForce))
			if err != nil || next.Revision != c.revision || next.By != c.by || next.Rules.Digest() != c.config.Rules().Digest() || next.Time.IsZero() {
				t.Errorf("%s, forced %t: %v, %+v", name, force, err, next)
			}
		}
	}
}

func TestProposalKeepsUnknownFields(t *testing.T) {
	s := groupWith(nil)
	s.Policy = cluster.ReadStored[cluster.Policy]("/c/policy", []byte(`{"v":1,"revision":7,"type":"first","color":"red"}`), cluster.Stat{}, true)
	next, err := Proposal{Config: configured(t), By: "bob@host"}.Next(s)
	if err != nil || !strings.Contains(string(cluster.Encode(&next)), `"color":"red"`) {
		t.Errorf("%v, %+v", err, next)
	}
}

func TestProposalDoesNotReplaceANewerPolicy(t *testing.T) {
	for _, force := range []bool{false, true} {
		s := groupWith(nil)
		s.Policy = cluster.ReadStored[cluster.Policy]("/c/policy", []byte(`{"v":9}`), cluster.Stat{}, true)
		_, err := Proposal{Config: configured(t), Force: force}.Next(s)
		if !errors.Is(err, s.Policy.Err) || !strings.Contains(err.Error(), "the policy is not replaced: znode /c/policy has format version 9") {
			t.Errorf("forced %t: %v", force, err)
		}
	}
}

func TestProposalWithoutEligibleMembersIsRefused(t *testing.T) {
	c := configured(t, "ZKELECTD_POLICY_FILTER=member.priority >= 8")
	w := Proposal{Config: c, By: "bob@host"}
	_, err := w.Next(groupWith(nil))
	var none *NoEligibleError
	if !errors.As(err, &none) || !strings.Contains(none.Reasons, "a: policy.filter does not hold: member.priority >= 8") || !strings.Contains(err.Error(), "--apply --force publishes it anyway") {
		t.Errorf("publication: error %v", err)
	}
	w.Force = true
	if next, err := w.Next(groupWith(nil)); err != nil || next.Revision != 1 || len(next.Rules.Filter) != 1 {
		t.Errorf("forced: %v, %+v", err, next)
	}
	w.Force = false
	if _, err := w.Next(cluster.Snapshot{}); err != nil {
		t.Errorf("without members: %v", err)
	}
	inForce := &cluster.Policy{Revision: 3, Rules: c.Rules()}
	if next, err := w.Next(groupWith(inForce)); err != nil || next.Revision != 3 {
		t.Errorf("in force already: %v, %+v", err, next)
	}
	s := groupWith(nil)
	s.Members[1].Node.Record.Priority = 8
	if _, err := w.Next(s); err != nil {
		t.Errorf("one is eligible: %v", err)
	}
}

// What was made from one policy does not replace another one, even if that has the same version as it was created
// again meanwhile.
func TestProposalDoesNotReplaceAnotherPolicyThanItWasMadeFrom(t *testing.T) {
	s := groupWith(&cluster.Policy{Revision: 4, By: "ann@host", Rules: configured(t, "ZKELECTD_POLICY_TYPE=first").Rules()})
	s.Policy.Stat = cluster.Stat{Created: 10, Version: 3}
	p := Proposal{Config: configured(t, "ZKELECTD_POLICY_HYSTERESIS=7"), Opened: &s.Policy}
	if next, err := p.Next(s); err != nil || next.Revision != 5 {
		t.Errorf("the same: %v, %+v", err, next)
	}
	for _, stat := range []cluster.Stat{{Created: 10, Version: 4}, {Created: 11, Version: 3}} {
		now := groupWith(&cluster.Policy{Revision: 6, By: "bob@host", Rules: configured(t).Rules()})
		now.Policy.Stat = stat
		_, err := p.Next(now)
		var refused *request.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "bob@host has published revision 6 since it was read: policy.type: first -> priority") {
			t.Errorf("%+v: %v", stat, err)
		}
	}
}

// If no member is eligible under the policy in force either, the new one is not at fault.
func TestAnyProposalIsAcceptedIfNoMemberIsEligibleAnyway(t *testing.T) {
	s := groupWith(nil)
	for i := range s.Members {
		s.Members[i].Node.Record.Unhealthy = "not probed yet"
	}
	if _, err := (Proposal{Config: configured(t)}).Next(s); err != nil {
		t.Errorf("without a policy in force: %v", err)
	}
	s = groupWith(&cluster.Policy{Revision: 3, Rules: cluster.Rules{Type: "priority", Filter: []string{"member.priority >= 9"}}})
	if _, err := (Proposal{Config: configured(t, "ZKELECTD_POLICY_FILTER=member.priority >= 8")}).Next(s); err != nil {
		t.Errorf("under the one in force: %v", err)
	}
}
