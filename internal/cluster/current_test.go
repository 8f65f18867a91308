package cluster

import (
	"strings"
	"testing"
)

// Only a current of the session that the fence names counts. One of the reader's own stays readable: the reader deletes it.
func TestCheckCurrent(t *testing.T) {
	const holder, reader, other = 7, 8, 9
	ready := Current{Term: 3, Node: "n1", State: CurrentReady}
	for name, c := range map[string]struct {
		fence   Stored[Fence]
		owner   int64
		foreign string
	}{
		"the holder's":            {Stored[Fence]{Exists: true, Record: Fence{Session: holder}}, holder, ""},
		"the reader's":            {Stored[Fence]{Exists: true, Record: Fence{Session: holder}}, reader, ""},
		"another session's":       {Stored[Fence]{Exists: true, Record: Fence{Session: holder}}, other, "session 0x9 owns it"},
		"a copy":                  {Stored[Fence]{Exists: true, Record: Fence{Session: holder}}, 0, "no session owns it"},
		"a copy, unknown holder":  {Stored[Fence]{Exists: true}, 0, "no session owns it"},
		"one of unknown holder":   {Stored[Fence]{Exists: true}, other, "session 0x9 owns it"},
		"under a damaged fence":   {Stored[Fence]{Exists: true, Err: ErrInvalid}, other, ""},
		"under a fence not there": {Stored[Fence]{}, 0, ""},
	} {
		s := Snapshot{Session: reader, Fence: c.fence, Current: Stored[Current]{Exists: true, Stat: Stat{Owner: c.owner}, Record: ready}}
		s.CheckCurrent(Paths{Root: "/c"})
		if s.ForeignCurrent() != (c.foreign != "") || s.Current.Readable() != (c.foreign == "") || !s.Current.Exists {
			t.Errorf("%s: %+v", name, s.Current)
		}
		if err := s.Current.Err; err != nil && (!strings.Contains(err.Error(), c.foreign) || !strings.Contains(err.Error(), "deleteall /c/leader/current")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A newer format is not damage, no matter which session owns the znode.
func TestCheckCurrentLeavesANewerFormatAlone(t *testing.T) {
	newer := &NewerVersionError{Path: "/c/leader/current", Version: 9}
	s := Snapshot{Fence: Stored[Fence]{Exists: true}, Current: Stored[Current]{Exists: true, Err: newer}}
	if s.CheckCurrent(Paths{Root: "/c"}); s.ForeignCurrent() || s.Current.Newer() == nil {
		t.Errorf("%+v", s.Current)
	}
}
