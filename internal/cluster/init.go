package cluster

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// UsageEvidence is what may show that a group has a leader, or had one.
type UsageEvidence struct {
	Snapshot Snapshot
	// Nodes and Incarnations are the names of the children of nodes and election.
	Nodes, Incarnations []string
	// History is set if there is a history.
	History bool
}

// InUseError is the error for a group that is in use, or has been: it may have a leader.
type InUseError struct {
	Root  string
	Found []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("the group %s is in use, or has been: %s; it was not initialized. Just start its daemons: the "+
		"first leader waits some "+
		"seconds for a lease that might still be running. To start over, stop all daemons, delete everything under "+
		"%s, and run this again",
		e.Root, strings.Join(e.Found, "; "), e.Root)
}

// InUse returns an [InUseError] with every trace of a member or a leader in the group, nil if there is none.
func (p Paths) InUse(t UsageEvidence) error {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if n := len(t.Incarnations); n > 0 {
		say("znode %s has %d incarnations (such as %s)", p.Election(), n, t.Incarnations[0])
	}
	if n := len(t.Nodes); n > 0 {
		say("znode %s has %d nodes (such as %s)", p.Nodes(), n, t.Nodes[0])
	}
	s := &t.Snapshot
	if s.Elected.Exists {
		say("znode %s exists", p.Elected())
	}
	if s.Current.Exists {
		say("znode %s exists", p.Current())
	}
	if s.Roster.Exists {
		say("znode %s exists", p.Roster())
	}
	if t.History {
		say("znode %s exists", p.History())
	}
	switch f := s.Fence; {
	case errors.Is(f.Err, ErrNeverWritten):
	case f.Err != nil:
		say("%v", f.Err)
	case f.Exists && (f.Record.Term != 0 || f.Record.State != FenceReleased):
		say("znode %s holds term %d of %s, %s", p.Leader(), f.Record.Term, f.Record.Node, f.Record.State)
	}
	if len(found) == 0 {
		return nil
	}
	return &InUseError{Root: p.Root, Found: found}
}

// InitTx writes a clean fence into a group that has no leader, as the operator by asserts. It fails with ErrBadVersion
// if a daemon has elected meanwhile: an election writes a fence that was never written.
func (p Paths) InitTx(read Stored[Fence], by string, wall time.Time) []Op {
	f := Fence{State: FenceReleased, Reason: "initialized by " + by, Requested: true, Time: wall}
	return p.writeFence(read, f, wall.Unix()) // where the terms begin
}
