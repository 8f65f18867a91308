package status

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A host that does not take part in a group says so, whatever its last view of the group was.
func TestMembership(t *testing.T) {
	fresh := Daemon{
		Node: "a", Group: "billing", Incarnation: "a-n_0", Phase: "leading", Loop: true, Session: true, Connected: true, PublishedAt: 1, SnapshotAt: 1, RespondedAt: 1,
		LeaseRemaining: cluster.Duration(time.Second), SessionTimeout: cluster.Duration(6 * time.Second),
	}
	for _, membership := range []string{MembershipJoining, MembershipLeaving, MembershipRefused, MembershipParked} {
		v := fresh
		v.Membership, v.MembershipReason = membership, "a reason"
		for name, err := range map[string]error{"leader": v.CheckLeader(), "replica": v.CheckReplica(), "health": v.CheckHealthy(), "ready": v.CheckReady()} {
			if err == nil || !strings.Contains(err.Error(), membership+": a reason") {
				t.Errorf("%s, %s: %v", membership, name, err)
			}
		}
		if v.State() != membership || v.CheckLoop() != nil || v.Summary().State != membership || len(v.Problems()) != 1 {
			t.Errorf("%s: %s, %v, %q", membership, v.State(), v.CheckLoop(), v.Problems())
		}
	}
	for _, membership := range []string{"", MembershipMember} {
		v := fresh
		v.Membership = membership
		if !v.Leads() || v.State() != "leading" || len(v.Problems()) > 0 {
			t.Errorf("%q: %v, %s", membership, v.CheckLeader(), v.State())
		}
	}
}

func TestProblemsAreListed(t *testing.T) {
	v := Daemon{Note: "n", Unkillable: "u", Newer: "w", Unhealthy: "h", Drift: "d", SlotsDrift: "s", Loop: true, Age: cluster.Duration(time.Hour)}
	if got := v.Problems(); len(got) != 7 {
		t.Errorf("%q", got)
	}
}

func TestHostAge(t *testing.T) {
	if got := (Host{{Age: 3}, {Age: 7}, {Age: 5}}).Age(); got != 7 {
		t.Errorf("%d", got)
	}
	if got := (Host{{Age: 3, Loop: true}, {Age: 7, Membership: MembershipParked}, {Age: 5, Loop: true}}).Age(); got != 5 {
		t.Errorf("with a parked group: %d", got)
	}
}
