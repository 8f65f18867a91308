package elector

import (
	"cmp"
	"slices"

	"zkelectd/internal/cluster"
)

// attemptEnd says whether and how the elected attempt has ended: the grounds for an election.
type attemptEnd struct {
	ended   bool // the attempt has ended
	cause   cluster.Cause
	reason  string
	request cluster.Request // the operator's, if there is one
	strike  bool            // against the elected node
	holder  bool            // it has ended because of the holder of the fence, which is another one
}

// checkAttempt applies the rules (a) to (c) of docs/protocol.md, Electing: whether the elected attempt is over, why,
// and whether that is a strike. known is the highest term that was known before.
func checkAttempt(in Input, known int64) attemptEnd {
	if g := checkRecords(&in.Snapshot, known); g.ended {
		return g
	}
	s := &in.Snapshot
	rec, fence := s.Elected.Record, s.Fence.Record
	_, alive := s.Member(rec.Incarnation)
	if s.Acquired() {
		switch fence.State {
		case cluster.FenceReleased, cluster.FenceUnclean:
			if fence.Lost {
				return attemptEnd{ended: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone: " + fence.Reason}
			}
			if fence.Lapsed {
				return attemptEnd{ended: true, cause: cluster.CauseLapsed, reason: rec.Node + " released leadership: " +
					fence.Reason}
			}
			if fence.Requested {
				return attemptEnd{ended: true, cause: cluster.CauseStopped, reason: rec.Node +
					" released leadership: " + fence.Reason}
			}
			return attemptEnd{ended: true, cause: cluster.CauseGaveUp, reason: rec.Node + " gave up: " + fence.Reason,
				strike: true}
		case cluster.FenceRevoked:
			return attemptEnd{ended: true, cause: cluster.CauseRevoked, reason: rec.Node + " was revoked: " +
				fence.Reason, strike: !fence.Requested}
		}
	}
	why, silent := in.Silent[rec.Incarnation]
	switch {
	case !alive:
		return attemptEnd{ended: true, cause: cluster.CauseFailure, reason: rec.Node + " is gone"}
	case silent || s.DeclaredSilent(rec.Incarnation):
		return attemptEnd{ended: true, cause: cluster.CauseSilent, reason: rec.Node + " is silent: " +
			cmp.Or(why, "another elector has found that")}
	case in.takes():
		return attemptEnd{ended: true, cause: cluster.CauseSilent, holder: true, reason: fence.Node +
			", which still holds leadership, is silent: " + in.Silent[fence.Incarnation]}
	case s.Acquired() && s.ForeignCurrent():
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "current was replaced under " + rec.Node}
	case s.Acquired() && !s.Current.Exists:
		// Its session has not ended, or the incarnation would be gone as well.
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "current was deleted under " + rec.Node}
	case in.Overdue != "":
		return attemptEnd{ended: true, cause: cluster.CauseOverdue, reason: rec.Node + " " + in.Overdue, strike: true}
	}
	return attemptEnd{}
}

// checkRecords returns whether there is no decision, or the records do not agree with it.
func checkRecords(s *cluster.Snapshot, known int64) attemptEnd {
	rec, fence := s.Elected.Record, s.Fence.Record
	elected, fenced := s.Terms()
	switch {
	case !s.Elected.Exists && fenced == 0 && known == 0:
		return attemptEnd{ended: true, cause: cluster.CauseFirst, reason: "first election"}
	case !s.Elected.Exists:
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "the decision was deleted"}
	case s.Elected.Err != nil:
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: s.Elected.Err.Error()}
	case !s.Fence.Exists:
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "the fence was deleted"}
	case s.Fence.Err != nil:
		// The term may have been acquired, and must not be a second time.
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: s.Fence.Err.Error()}
	case fenced > elected || (fenced == elected && fenced != 0 && fence.Incarnation != rec.Incarnation):
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "the decision is older than the last leadership"}
	case s.Slot == "" && fence.State != cluster.FenceReady && s.Remembered() > elected:
		// All records were lost, and a daemon that remembered none of this elected before those that do had registered.
		return attemptEnd{ended: true, cause: cluster.CauseRepair, reason: "a member remembers a later term"}
	}
	return attemptEnd{}
}

// circumstances returns those of a new election if the attempt is over, else those of the decision in force.
func circumstances(s *cluster.Snapshot, g attemptEnd) cluster.Circumstances {
	rec, fence := s.Elected.Record, s.Fence.Record
	c := rec.Circumstances
	cause, seen := g.cause.InPolicy()
	if !g.ended || !seen {
		return c
	}
	failed := c.Failed
	if fence.Term == rec.Term && (fence.State == cluster.FenceReady || fence.Led) {
		failed = nil // there has been a leader since
	}
	c = cluster.Circumstances{Cause: cause, Node: rec.Node, Site: rec.Site}
	if c.Node == "" || g.holder {
		c.Node, c.Site = fence.Node, fence.Site
	}
	c.Failed = slices.Clone(failed)
	if g.cause.IsSiteFailure() && c.Site != "" && !slices.Contains(failed, c.Site) {
		c.Failed = append(c.Failed, c.Site)
	}
	return c
}
