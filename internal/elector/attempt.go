package elector

import (
	"slices"

	"zkelectd/internal/cluster"
)

// grounds are the grounds for an election: what has become of the elected attempt.
type grounds struct {
	over    bool // the attempt is over
	cause   cluster.Cause
	reason  string
	request cluster.Request // the operator's, if there is one
	strike  bool            // against the elected node
}

// judgeAttempt applies the rules (a) to (c) of docs/protocol.md, Electing: whether the elected attempt is over, why, and
// whether that is a strike. known is the highest term that was known before.
func judgeAttempt(in Input, known int64) grounds {
	s := &in.Snapshot
	rec, fence := s.Elected.Record, s.Fence.Record
	elected, fenced := s.Terms()
	switch {
	case !s.Elected.Exists && fenced == 0 && known == 0:
		return grounds{over: true, cause: cluster.CauseFirst, reason: "first election"}
	case !s.Elected.Exists:
		return grounds{over: true, cause: cluster.CauseRepair, reason: "the decision was deleted"}
	case s.Elected.Err != nil:
		return grounds{over: true, cause: cluster.CauseRepair, reason: s.Elected.Err.Error()}
	case !s.Fence.Exists:
		return grounds{over: true, cause: cluster.CauseRepair, reason: "the fence was deleted"}
	case s.Fence.Err != nil:
		// The term may have been acquired, and must not be a second time.
		return grounds{over: true, cause: cluster.CauseRepair, reason: s.Fence.Err.Error()}
	case fenced > elected || (fenced == elected && fenced != 0 && fence.Incarnation != rec.Incarnation):
		return grounds{over: true, cause: cluster.CauseRepair, reason: "the decision is older than the last leadership"}
	}
	_, alive := s.Member(rec.Incarnation)
	if s.Acquired() {
		switch fence.State {
		case cluster.FenceReleased, cluster.FenceUnclean:
			if fence.Lost {
				return grounds{over: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone: " + fence.Reason}
			}
			if fence.Requested {
				return grounds{over: true, cause: cluster.CauseStopped, reason: rec.Node + " released leadership: " + fence.Reason}
			}
			return grounds{over: true, cause: cluster.CauseGaveUp, reason: rec.Node + " gave up: " + fence.Reason, strike: true}
		case cluster.FenceRevoked:
			return grounds{over: true, cause: cluster.CauseRevoked, reason: rec.Node + " was revoked: " + fence.Reason, strike: true}
		}
	}
	switch {
	case !alive:
		return grounds{over: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone"}
	case s.Acquired() && !s.Current.Exists:
		// Its session has not ended, or the incarnation would be gone as well.
		return grounds{over: true, cause: cluster.CauseRepair, reason: "current was deleted under " + rec.Node}
	case in.Overdue != "":
		return grounds{over: true, cause: cluster.CauseOverdue, reason: rec.Node + " " + in.Overdue, strike: true}
	}
	return grounds{}
}

// circumstances returns those of a new election if the attempt is over, else those of the decision in force.
func circumstances(s *cluster.Snapshot, g grounds) cluster.Circumstances {
	rec, fence := s.Elected.Record, s.Fence.Record
	c := rec.Circumstances
	if c.Cause == "" {
		c = cluster.Circumstances{Cause: rec.Cause, Node: rec.PreviousNode, Site: rec.PreviousSite}
	}
	if !g.over {
		return c
	}
	failed := c.Failed
	if fence.Term == rec.Term && (fence.State == cluster.FenceReady || fence.Led) {
		failed = nil // there has been a leader since
	}
	c = cluster.Circumstances{Cause: g.cause, Node: rec.Node, Site: rec.Site}
	if c.Node == "" {
		c.Node, c.Site = fence.Node, fence.Site
	}
	c.Failed = slices.Clone(failed)
	if blamesSite(g.cause) && c.Site != "" && !slices.Contains(failed, c.Site) {
		c.Failed = append(c.Failed, c.Site)
	}
	return c
}

// blamesSite reports whether a cause counts as a failure of the elected node's site.
func blamesSite(c cluster.Cause) bool {
	switch c {
	case cluster.CauseFailure, cluster.CauseGaveUp, cluster.CauseRevoked, cluster.CauseOverdue, cluster.CauseUnhealthy:
		return true
	}
	return false
}
