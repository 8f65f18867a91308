package daemon

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

func elected(node, site string, term int64) cluster.Snapshot {
	return cluster.Snapshot{At: 1, Elected: cluster.Slot[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: node, Site: site, Term: term}}}
}

func TestLineForTheServiceManager(t *testing.T) {
	for name, c := range map[string]struct {
		v       status.Daemon
		snap    cluster.Snapshot
		refused bool
		want    string
	}{
		"before anything is read": {status.Daemon{Node: "a", Phase: "standby"}, cluster.Snapshot{}, false, "standby; nothing read yet"},
		"before the first choice": {status.Daemon{Node: "a", Phase: "standby", Elector: true}, cluster.Snapshot{At: 1}, false, "standby, elector; nobody is elected"},
		"another leads":           {status.Daemon{Node: "a", Phase: "standby", Elected: "b"}, elected("b", "dc2", 7), false, "standby; b (site dc2) is elected in term 7"},
		"elected":                 {status.Daemon{Node: "a", Phase: "waiting", Elected: "a"}, elected("a", "dc1", 8), false, "waiting; elected in term 8"},
		"leads":                   {status.Daemon{Node: "a", Phase: "leading", Elector: true, Term: 8, Elected: "a"}, elected("a", "dc1", 8), false, "leading, elector, term 8"},
		"a refused reload":        {status.Daemon{Node: "a", Phase: "leading", Term: 8}, elected("a", "dc1", 8), true, "leading, term 8; the last reload was refused (see the log)"},
		"a record with intent":    {status.Daemon{Node: "a", Phase: "standby", Elected: "b"}, elected("b\nSTOPPING=1", "\x1b[31m", 7), false, "standby; b?STOPPING=1 (site ?[31m) is elected in term 7"},
		"a record that is broken": {status.Daemon{Node: "a", Phase: "standby"}, cluster.Snapshot{At: 1, Elected: cluster.Slot[cluster.Elected]{Exists: true, Err: cluster.ErrNoNode}}, false, "standby; nobody is elected"},
	} {
		if got := line(c.v, c.snap, c.refused); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestTheServiceManagerHearsOfChangesOnly(t *testing.T) {
	var got []string
	s := service{notify: func(m string) { got = append(got, m) }}
	s.status("waiting")
	s.status("waiting")
	s.ready("standby")
	s.status("standby")
	s.reloading()
	s.ready("standby") // a reload has an end, even if it changes nothing
	s.status("leading")
	want := []string{"STATUS=waiting", "READY=1\nSTATUS=standby", "RELOADING=1\nMONOTONIC_USEC=", "READY=1\nSTATUS=standby", "STATUS=leading"}
	for i := range got {
		if key, stamp, ok := strings.Cut(got[i], "USEC="); ok && strings.Trim(stamp, "0123456789") == "" && stamp != "" {
			got[i] = key + "USEC="
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}
