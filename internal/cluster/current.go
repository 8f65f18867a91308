package cluster

import (
	"errors"
	"fmt"
)

// ErrForeignCurrent is the error of a current that is not the holder's. It stands in the way of every ACQUIRE, so the
// elector revokes it, but nobody leads by it.
var ErrForeignCurrent = errors.New("is not the leader's")

// CheckCurrent makes a current unreadable that does not belong to the session that the fence names: somebody has
// created it by hand, or copied it. The fence and current must be those of one moment. A current of the reader's own
// session stays as it is: the reader deletes it.
func (s *Snapshot) CheckCurrent(p Paths) {
	owner := s.Current.Stat.Owner
	if !s.Current.Exists || s.Current.Newer() != nil || !s.Fence.Readable() {
		return
	}
	if owner != 0 && (owner == s.Fence.Record.Session || owner == s.Session) {
		return
	}
	who := fmt.Sprintf("session 0x%x owns it", owner)
	if owner == 0 {
		who = "no session owns it"
	}
	s.Current.Record = Current{}
	s.Current.Err = fmt.Errorf("znode %s %w: %s; the elector deletes it: if it cannot, delete it with "+
		"'deleteall %s' in zkCli.sh",
		p.Current(), ErrForeignCurrent, who, p.Current())
}

// ForeignCurrent reports whether there is a current that is not the holder's.
func (s *Snapshot) ForeignCurrent() bool { return errors.Is(s.Current.Err, ErrForeignCurrent) }
