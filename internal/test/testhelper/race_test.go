package testhelper

import (
	"os"
	"strings"
	"testing"
)

func TestCheckReportsOwnRaces(t *testing.T) {
	const line = "\n==================\n"
	ours := line + "WARNING: DATA RACE\nzkelectd/internal/group.(*Member).Run()" + line
	theirs := line + "WARNING: DATA RACE\ngithub.com/go-zookeeper/zk.(*Conn).sendSetWatches()" + line
	for report, want := range map[string]bool{"": false, "level=INFO": false, ours: true, theirs: false, theirs + ours: true, ours + theirs: true} {
		t.Setenv("GORACE", "")
		races, err := CollectRaces()
		if err != nil {
			t.Fatal(err)
		}
		_, path, found := strings.Cut(os.Getenv("GORACE"), "log_path=")
		if err := os.WriteFile(path+".17", []byte(report), 0o600); err != nil || !found {
			t.Fatal(found, err)
		}
		if err := races.Check(); (err != nil) != want {
			t.Errorf("a report %q: %v", report, err)
		}
	}
}
