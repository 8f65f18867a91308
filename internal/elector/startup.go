package elector

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// startup delays the first election of a group whose hosts start, so that the first of them does not start the work of
// all groups only to hand it over (docs/groups.md, When a host is lost, when one returns).
type startup struct {
	over  bool
	since time.Duration // the elector's first decision; 0 before
}

// await returns the reason to wait before an election, and until when; empty if there is none. There is a wait if the
// group has never had a leader, or if this elector was the first member to register and nobody led then: its hosts
// start. best is the node that would be elected now; the wait ends early when no member of the last election is missing
// that may be better.
func (u *startup) await(in Input, g attemptEnd, best string, settle time.Duration) (reason string,
	until time.Duration) {
	s := &in.Snapshot
	first := u.since == 0
	if first {
		u.since = in.Now
	}
	starts := g.ended && (g.cause == cluster.CauseFirst || !in.Succeeded)
	until = u.since + settle
	if u.over || !starts || in.Now >= until || complete(s, best) {
		u.over = true
		return "", 0
	}
	return fmt.Sprintf("%s; the first election waits %s until other hosts have started, too (election.settle)",
		g.reason, settle), until
}

// complete reports whether all members of the last election are registered that may be better than best: a lost host
// that was ranked below it is not waited for. It returns false if they are not known. Of a large group only the best
// are known by name: then as many members as before count, too.
func complete(s *cluster.Snapshot, best string) bool {
	last := &s.Elected.Record
	registered := make(map[string]bool, len(s.Members))
	for i := range s.Members {
		registered[s.Members[i].ID] = true
	}
	rank := 0 // of best; 0 if it was not eligible
	for _, v := range last.Ranking {
		if v.Node == best {
			rank = v.Rank
		}
	}
	missing := func(v cluster.Verdict) bool { return !registered[v.Node] && (rank == 0 || v.Rank <= rank) }
	all := last.RankingOmitted == 0 || len(registered) >= last.RankedMembers()
	return len(last.Ranking) > 0 && all && !slices.ContainsFunc(last.Ranking, missing)
}
