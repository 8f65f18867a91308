package host

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

func TestStatusLine(t *testing.T) {
	elected := func(v status.Daemon, node, site string, term int64) status.Daemon {
		v.Node, v.SnapshotAt, v.Elected, v.ElectedSite, v.ElectedTerm = "a", 1, node, site, term
		return v
	}
	for name, c := range map[string]struct {
		v       status.Daemon
		refused bool
		want    string
	}{
		"before anything is read": {status.Daemon{Node: "a", Phase: "standby"}, false, "standby; nothing read yet"},
		"before the first choice": {status.Daemon{Node: "a", Phase: "standby", Elector: true, SnapshotAt: 1}, false, "standby, elector; no member is elected"},
		"no part in the group":    {status.Daemon{Phase: "standby", Membership: status.MembershipRefused, MembershipReason: "there is no group"}, false, "refused: there is no group"},
		"another leads":           {elected(status.Daemon{Phase: "standby"}, "b", "dc2", 7), false, "standby; b (site dc2) is elected in term 7"},
		"elected":                 {elected(status.Daemon{Phase: "waiting"}, "a", "dc1", 8), false, "waiting; elected in term 8"},
		"leads":                   {elected(status.Daemon{Phase: "leading", Elector: true, Term: 8}, "a", "dc1", 8), false, "leading, elector, term 8"},
		"a refused reload":        {elected(status.Daemon{Phase: "leading", Term: 8}, "a", "dc1", 8), true, "leading, term 8; the last reload was refused (see the log)"},
		"a record with intent":    {elected(status.Daemon{Phase: "standby"}, "b\nSTOPPING=1", "\x1b[31m", 7), false, "standby; b?STOPPING=1 (site ?[31m) is elected in term 7"},
	} {
		if got := line(c.v, c.refused); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestStatusIsSentWhenItChanges(t *testing.T) {
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
