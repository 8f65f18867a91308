package testhelper

import "testing"

func TestHasRace(t *testing.T) {
	const line = "\n==================\n"
	ours := line + "WARNING: DATA RACE\nzkelectd/internal/group.(*Member).Run()" + line
	theirs := line + "WARNING: DATA RACE\ngithub.com/go-zookeeper/zk.(*Conn).sendSetWatches()" + line
	for log, want := range map[string]bool{"": false, "level=INFO": false, ours: true, theirs: false, theirs + ours: true, ours + theirs: true} {
		if got := HasRace(log); got != want {
			t.Errorf("HasRace(%q) = %v", log, got)
		}
	}
}
