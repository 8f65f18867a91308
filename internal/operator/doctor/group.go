package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// findings are those about one group. base is the session timeout that leases are based on, 0 if it is not known.
func (g Group) findings(base time.Duration, version string) []Finding {
	all := append([]Finding{g.timing(base)}, g.programs()...)
	switch {
	case g.Denied:
		return append(all, Finding{Fail, "permissions", g.Name, "the credentials of this configuration do " +
			"not permit it: " + g.Err.Error(),
			"correct the credentials or zookeeper.root, or have someone with access run " +
				cluster.InGroup("'zkelectd acl --apply'", g.Name) + " (docs/security.md)"})
	case g.RootErr != nil:
		return append(all, Finding{Fail, "permissions", g.Name, "a daemon could not take part: " + g.RootErr.Error(),
			"see 'Teams that share an ensemble' in docs/groups.md"})
	case g.NotJoined:
		return append(all, Finding{Fail, "members", g.Name, g.Err.Error(), "start the daemon on the hosts of the group"})
	case g.Err != nil:
		return append(append(all, unknown("group", g.Name, g.Err, "")), g.active()...)
	}
	all = append(all, g.permissions(), g.leader(), g.members(), g.versions(version), g.policy())
	return append(append(all, g.standbys()...), g.failsafe()...)
}

// standbys returns a warning for each member whose promotable work could not be promoted.
func (g Group) standbys() (all []Finding) {
	const check = "standby"
	promotable := 0
	for _, m := range g.View.Members {
		if m.Standby == nil {
			continue
		}
		promotable++
		if m.Standby.State != cluster.StandbyWarm {
			all = append(all, Finding{Warn, check, g.Name, "that of " + m.Node + " is " + m.Standby.String(),
				"look at the log of the work on that host; until then that member takes over only if nobody with a " +
					"warm standby can"})
		}
	}
	if promotable > 0 && len(all) == 0 {
		all = append(all, good(check, g.Name, "warm on %s", plural(promotable, "host")))
	}
	return all
}

func (g Group) timing(base time.Duration) Finding {
	const check = "timing"
	if base == 0 {
		return unknown(check, g.Name, errors.New("the session timeout that the servers grant is not known"), "")
	}
	b, err := cluster.NewBudget(base, g.Lease, g.Stop)
	if err != nil {
		return Finding{Fail, check, g.Name, err.Error(), "correct the settings that this names"}
	}
	seen := fmt.Sprintf("a session timeout of %s permits a lease of %s", base, b.Lease)
	if g.Stop == 0 {
		return good(check, g.Name, "%s; there is no child to stop", seen)
	}
	return good(check, g.Name, "%s and a stop timeout of %s", seen, g.Stop)
}

func (g Group) programs() (all []Finding) {
	const check, advice = "programs", "correct it before a failover; a reload or 15 s later the daemon checks it again"
	if g.ProgramsErr != nil {
		all = append(all, unknown(check, g.Name, g.ProgramsErr, "look at the file systems of this host"))
	}
	var seen []string
	for _, err := range g.ProgramErrs {
		seen = append(seen, err.Error())
	}
	for _, text := range g.Reported {
		if !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	for _, text := range seen {
		all = append(all, Finding{Fail, check, g.Name, text, advice})
	}
	switch {
	case len(all) > 0:
	case g.Programs == 0:
		all = append(all, good(check, g.Name, "the configuration names none"))
	default:
		all = append(all, good(check, g.Name, "%s of the configuration: found, and this user can execute them",
			plural(g.Programs, "program")))
	}
	return all
}

func (g Group) permissions() Finding {
	const check = "permissions"
	switch {
	case g.ACLErr != nil:
		return unknown(check, g.Name, g.ACLErr, "")
	case len(g.LockedOut) > 0:
		return Finding{Fail, check, g.Name, "these members have no access to the znodes that the others create: " +
			listed(g.LockedOut),
			"give them the same zookeeper.auth.file or zookeeper.identities and reload them; " +
				cluster.InGroup("'zkelectd acl'", g.Name) + " has the details"}
	case len(g.Mismatched) > 0:
		return Finding{Warn, check, g.Name, "these znodes have another ACL than the configuration says: " +
			listed(g.Mismatched),
			"if zookeeper.acl and zookeeper.auth.file are right here and on all members, run " +
				cluster.InGroup("'zkelectd acl --apply'", g.Name)}
	case g.OpenTree:
		return Finding{Warn, check, g.Name, "anyone who can reach ZooKeeper can stop this group, or lock it out",
			"see zookeeper.acl in docs/security.md"}
	}
	return good(check, g.Name, "the znodes have the ACL of the configuration")
}

func (g Group) leader() Finding {
	const check = "leader"
	advice := cluster.InGroup("'zkelectd explain'", g.Name) + " shows the verdict on each member"
	v := g.View
	if g.Slots > 0 {
		out := problems(check, g.Name, v.Problems, fmt.Sprintf("each of %d slots has a READY leader", g.Slots))
		if len(g.Leaderless) > 0 {
			out = Finding{Warn, check, g.Name, fmt.Sprintf("%d of %d slots have no READY leader: %s",
				len(g.Leaderless), g.Slots, listed(g.Leaderless)), "see " + cluster.InGroup("'zkelectd status'", g.Name)}
		}
		if g.Severity == status.SeverityCritical {
			out.Result = Fail
		}
		return out
	}
	if severity, reasons := v.Condition().Judge(time.Now()); severity == status.SeverityCritical {
		if v.Failing != "" {
			advice = "find out what their work needs and does not have; then " +
				cluster.InGroup("'zkelectd clear-strikes --all'", g.Name) + " ends the pauses at once"
		}
		return Finding{Fail, check, g.Name, strings.Join(reasons, "; "), advice}
	} else if v.State != string(cluster.CurrentReady) {
		return Finding{Warn, check, g.Name, strings.Join(reasons, "; "),
			"wait, then look again; the log of that host says what its work waits for"}
	}
	return problems(check, g.Name, v.Problems, fmt.Sprintf("%s leads in term %d; %d of %d members can lead", v.Leader,
		v.Term, g.Eligible, len(v.Members)))
}

// problems is a warning with the problems of a status, or ok.
func problems(check, object string, all []string, seen string) Finding {
	if len(all) == 0 {
		return good(check, object, "%s", seen)
	}
	return Finding{Warn, check, object, seen + ", but: " + strings.Join(all, "; "), "see " +
		cluster.InGroup("'zkelectd status'", object) + ", and 'Problems in the status' in docs/operations.md"}
}

func (g Group) members() Finding {
	const check = "members"
	present, lost := len(g.View.Members), status.Lost(g.View.Absent)
	switch {
	case len(lost) > 0:
		return Finding{Warn, check, g.Name, fmt.Sprintf("%d of %d expected; lost: %s", present, g.View.Expected,
			listed(lost)),
			"start them again, or run " + cluster.InGroup("'zkelectd forget --lost'", g.Name) + " if they do not come back"}
	case present < 2:
		return Finding{Warn, check, g.Name, plural(present, "member"),
			"nobody can take over: start the daemon on another host"}
	}
	return good(check, g.Name, "%d of %d expected are registered", present, g.View.Expected)
}

func (g Group) versions(own string) Finding {
	const check = "versions"
	by := make(map[string][]string)
	for _, m := range g.Members {
		by[m.Version] = append(by[m.Version], m.Node)
	}
	if len(by) <= 1 {
		for v := range by {
			return good(check, g.Name, "all members run %s", orUnknown(v))
		}
		return unknown(check, g.Name, errors.New("no member is registered"), "")
	}
	var parts []string
	for v, nodes := range by {
		parts = append(parts, fmt.Sprintf("%s: %s", orUnknown(v), listed(nodes)))
	}
	slices.Sort(parts)
	return Finding{Warn, check, g.Name, "the members run different versions: " + strings.Join(parts, "; "),
		fmt.Sprintf("finish the upgrade (docs/operations.md); this binary is %s", own)}
}

func (g Group) policy() Finding {
	const check = "policy"
	advice := cluster.InGroup("'zkelectd policy'", g.Name) + " prints it: copy it into the file, and reload. To " +
		"change the policy, edit the file after that, and reload again"
	var drifted, inFile, inGroup []string
	for _, m := range g.Members {
		if m.PolicyDrift {
			drifted = append(drifted, m.Node)
		}
		if m.PolicyInFile {
			inFile = append(inFile, m.Node)
		} else {
			inGroup = append(inGroup, m.Node)
		}
	}
	switch {
	case len(g.Drift) > 0:
		return Finding{Warn, check, g.Name, fmt.Sprintf("the policy in force, %s, is not the one in this "+
			"configuration: %s", g.Policy, listed(g.Drift)), advice}
	case len(drifted) > 0:
		return Finding{Warn, check, g.Name, fmt.Sprintf("the policy in force, %s, is not in the files of "+
			"these members: %s", g.Policy, listed(drifted)), advice}
	case g.Policy == "":
		return unknown(check, g.Name, errors.New("no policy has been published yet"), "")
	case len(inFile) > 0 && len(inGroup) > 0:
		return Finding{Warn, check, g.Name, fmt.Sprintf("policy.source is files on %s, and group on %s", listed(inFile),
			listed(inGroup)),
			"set the same on all hosts, and reload them"}
	case g.PolicyInGroup:
		return good(check, g.Name, "%s; no configuration has another one", g.Policy)
	}
	return good(check, g.Name, "%s, the same in all configurations", g.Policy)
}

// failsafe are the findings about failsafe mode: one for each other member, as the daemon of this host has asked it.
// There is none if the policy does not enable it.
func (g Group) failsafe() []Finding {
	const check, advice = "failsafe mode", "see 'What each host needs' in docs/failsafe.md"
	view, own := g.View.Failsafe, g.Failsafe
	switch {
	case view == nil:
		return nil
	case view.Stuck:
		return []Finding{{Fail, check, g.Name, "the last leader may still work, and none of these nodes, which can " +
			"say otherwise, is registered with the state directory that it had: " + listed(view.WaitsFor),
			"start one of them; see 'All hosts are lost for good' in docs/failsafe.md"}}
	case g.FailsafeErr != nil:
		return []Finding{unknown(check, g.Name, g.FailsafeErr, cluster.InGroup("'zkelectd status'", g.Name)+
			" says what the leader has found")}
	case own == nil:
		return []Finding{{Warn, check, g.Name, "the policy enables it, but the daemon of this host takes no part: " +
			"its configuration does not have failsafe.enabled", advice}}
	case own.Problem != "":
		return []Finding{{Warn, check, g.Name, "it would not work if this host led: " + own.Problem, advice}}
	}
	return g.promisers(own)
}

// promisers has a finding for each other member.
func (g Group) promisers(own *status.Failsafe) (all []Finding) {
	const check, advice = "failsafe mode", "see 'What each host needs' in docs/failsafe.md"
	for _, m := range g.View.Members {
		switch why, bad := own.Unready[m.Node]; {
		case m.Node == g.Node:
		case bad:
			all = append(all, Finding{Warn, check, g.Name, m.Node + " would not promise, so without ZooKeeper the " +
				"leader would stop: " + why, advice})
		default:
			all = append(all, good(check, g.Name, "%s would promise", m.Node))
		}
	}
	if len(all) == 0 {
		return []Finding{unknown(check, g.Name, errors.New("no other member is registered"), "")}
	}
	return append(all, g.active()...)
}

// active is the finding about a leader that ZooKeeper does not answer.
func (g Group) active() []Finding {
	if g.Failsafe == nil || !g.Failsafe.Active {
		return nil
	}
	return []Finding{{Warn, "failsafe mode", g.Name, "ACTIVE: this host leads without ZooKeeper, by the promises of " +
		listed(g.Failsafe.Asks),
		"bring ZooKeeper back; until then stop no daemon of the group"}}
}
