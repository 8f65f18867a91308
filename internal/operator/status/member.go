package status

import (
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// viewMember returns the view of a member. inForce is the digest of the policy in force, "" if that is not known.
func viewMember(s cluster.Snapshot, m cluster.Member, elector bool, inForce string) Member {
	n := m.Node.Record
	return Member{
		Node: m.ID, Site: n.Site, Priority: n.Priority, Labels: n.Labels, Roles: roles(s, m, elector), Health: health(m), Eligible: eligible(s, m),
		API: n.API, Host: n.Host, PID: n.PID, Incarnation: m.Name, Since: timeOrNil(n.Since), Latency: n.Latency, Score: n.Score,
		Drift: inForce != "" && n.PolicyDigest != "" && n.PolicyDigest != inForce, Queued: n.Queued, Reason: lastVerdict(s, m),
	}
}

// What is said of a member without anything to report. CanLead is that of [Member.Eligible].
const (
	healthy = "ok"
	CanLead = "yes"
)

// health returns ok, or what the health probe reports.
func health(m cluster.Member) string {
	if why := m.Node.Record.Unhealthy; why != "" {
		return "unhealthy: " + why
	}
	return healthy
}

// IsEligible reports whether the member is eligible, unless the policy has a filter against it.
func (m Member) IsEligible() bool { return m.Eligible == CanLead }

// EligibleMembers returns how many members could lead.
func (g Group) EligibleMembers() (n int) {
	for _, m := range g.Members {
		if m.IsEligible() {
			n++
		}
	}
	return n
}

// eligible returns yes, or why the member is not eligible under any policy.
func eligible(s cluster.Snapshot, m cluster.Member) string {
	for _, x := range exclusions(s) {
		if x.Node == m.ID && !x.Expired {
			return x.Describe()
		}
	}
	if err := policy.CheckMember(m, s.Control.Record.Cordons); err != nil {
		return err.Error()
	}
	return CanLead
}

func roles(s cluster.Snapshot, m cluster.Member, elector bool) []string {
	list := []string{}
	holds := s.Current.Readable() && s.Current.Record.Incarnation == m.Name
	switch elected := s.Elected.Readable() && s.Elected.Record.Incarnation == m.Name && !s.Ended(); {
	case holds && s.Current.Record.State == cluster.CurrentReady:
		list = append(list, "leader")
	case holds || elected:
		list = append(list, "candidate")
	}
	if elector {
		list = append(list, "elector")
	}
	return list
}

// lastVerdict returns what the last decision recorded for the member, "" if it has joined since, or if the decision leaves
// its verdict out.
func lastVerdict(s cluster.Snapshot, m cluster.Member) string {
	for _, v := range s.Elected.Record.Ranking {
		if v.Incarnation == m.Name && v.Rank > 0 {
			return fmt.Sprintf("%d. %s", v.Rank, v.Reason)
		} else if v.Incarnation == m.Name {
			return v.Reason
		}
	}
	return ""
}
