package elector

import (
	"slices"

	"zkelectd/internal/cluster"
)

// verdict is what has become of the elected attempt.
type verdict struct {
	over    bool
	cause   cluster.Cause
	reason  string
	request cluster.Request // the operator's that asked for it
	strike  bool
}

// attempt applies the rules (a) to (c): is the elected attempt over, why, and whose fault is it? known is the highest term
// that was known before.
func attempt(in Input, known int64) verdict {
	s := &in.Snapshot
	rec, fence := s.Elected.Record, s.Fence.Record
	elected, fenced := s.Terms()
	switch {
	case !s.Elected.Exists && fenced == 0 && known == 0:
		return verdict{over: true, cause: cluster.CauseFirst, reason: "first election"}
	case !s.Elected.Exists:
		return verdict{over: true, cause: cluster.CauseRepair, reason: "the decision had been deleted"}
	case s.Elected.Err != nil:
		return verdict{over: true, cause: cluster.CauseRepair, reason: s.Elected.Err.Error()}
	case !s.Fence.Exists:
		return verdict{over: true, cause: cluster.CauseRepair, reason: "the fence had been deleted"}
	case s.Fence.Err != nil:
		// The term may have been acquired, and must not be a second time.
		return verdict{over: true, cause: cluster.CauseRepair, reason: s.Fence.Err.Error()}
	case fenced > elected || (fenced == elected && fenced != 0 && fence.Incarnation != rec.Incarnation):
		return verdict{over: true, cause: cluster.CauseRepair, reason: "the decision is older than the last leadership"}
	}
	_, alive := s.Member(rec.Incarnation)
	if s.Acquired() {
		switch fence.State {
		case cluster.FenceReleased, cluster.FenceUnclean:
			if fence.Lost {
				return verdict{over: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone: " + fence.Reason}
			}
			if fence.Requested {
				return verdict{over: true, cause: cluster.CauseStopped, reason: rec.Node + " let go: " + fence.Reason}
			}
			return verdict{over: true, cause: cluster.CauseGaveUp, reason: rec.Node + " gave up: " + fence.Reason, strike: true}
		case cluster.FenceRevoked:
			return verdict{over: true, cause: cluster.CauseRevoked, reason: rec.Node + " was revoked: " + fence.Reason, strike: true}
		}
	}
	switch {
	case !alive:
		return verdict{over: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone"}
	case s.Acquired() && !s.Current.Exists:
		// Not the session's end, or the incarnation would be gone as well.
		return verdict{over: true, cause: cluster.CauseRepair, reason: "current had been deleted under " + rec.Node}
	case in.Overdue != "":
		return verdict{over: true, cause: cluster.CauseOverdue, reason: rec.Node + " is " + in.Overdue, strike: true}
	}
	return verdict{}
}

// circumstances are those of a new election where the attempt is over, of the standing decision where it is not.
func circumstances(s *cluster.Snapshot, v verdict) cluster.Circumstances {
	rec, fence := s.Elected.Record, s.Fence.Record
	c := rec.Circumstances
	if c.Cause == "" {
		c = cluster.Circumstances{Cause: rec.Cause, Node: rec.PreviousNode, Site: rec.PreviousSite}
	}
	if !v.over {
		return c
	}
	failed := c.Failed
	if fence.Term == rec.Term && (fence.State == cluster.FenceReady || fence.Led) {
		failed = nil // somebody has led since
	}
	c = cluster.Circumstances{Cause: v.cause, Node: rec.Node, Site: rec.Site}
	if c.Node == "" {
		c.Node, c.Site = fence.Node, fence.Site
	}
	c.Failed = slices.Clone(failed)
	if failure(v.cause) && c.Site != "" && !slices.Contains(failed, c.Site) {
		c.Failed = append(c.Failed, c.Site)
	}
	return c
}

// failure tells that a cause speaks against the site of who was elected.
func failure(c cluster.Cause) bool {
	switch c {
	case cluster.CauseFailure, cluster.CauseGaveUp, cluster.CauseRevoked, cluster.CauseOverdue, cluster.CauseUnhealthy:
		return true
	}
	return false
}
