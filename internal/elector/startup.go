package elector

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// startup delays the first election of a group whose hosts start, so that the first of them does not start the work of all groups
// only to hand it over (docs/groups.md, When a host is lost, when one returns).
type startup struct {
	over  bool
	since time.Duration // the elector's first decision; 0 before
}

// await returns the reason to wait before an election, and until when; empty if there is none. There is a wait if the group has never
// had a leader, or if this elector was the first member to register and nobody led then: its hosts start. It ends early when all
// members of the last election are registered.
func (u *startup) await(in Input, g attemptEnd, settle time.Duration) (reason string, until time.Duration) {
	s := &in.Snapshot
	first := u.since == 0
	if first {
		u.since = in.Now
	}
	starts := g.ended && (g.cause == cluster.CauseFirst || !in.Succeeded)
	until = u.since + settle
	if u.over || !starts || in.Now >= until || complete(s) {
		u.over = true
		return "", 0
	}
	return fmt.Sprintf("%s; the first election waits %s until other hosts have started, too (election.settle)", g.reason, settle), until
}

// complete reports whether all members of the last election are registered. It returns false if they are not known. Of a large group
// only the best are known by name: then as many members as before count.
func complete(s *cluster.Snapshot) bool {
	last := &s.Elected.Record
	registered := make(map[string]bool, len(s.Members))
	for i := range s.Members {
		registered[s.Members[i].ID] = true
	}
	missing := func(v cluster.Verdict) bool { return !registered[v.Node] }
	return len(last.Ranking) > 0 && len(registered) >= last.RankedMembers() && !slices.ContainsFunc(last.Ranking, missing)
}
