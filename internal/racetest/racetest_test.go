package racetest

import "testing"

func TestFound(t *testing.T) {
	const line = "\n==================\n"
	ours := line + "WARNING: DATA RACE\nzkelectd/internal/daemon.(*loop).run()" + line
	theirs := line + "WARNING: DATA RACE\ngithub.com/go-zookeeper/zk.(*Conn).sendSetWatches()" + line
	for log, want := range map[string]bool{"": false, "level=INFO": false, ours: true, theirs: false, theirs + ours: true, ours + theirs: true} {
		if got := Found(log); got != want {
			t.Errorf("%v of %q", got, log)
		}
	}
}
