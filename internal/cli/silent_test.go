package cli

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// A lost host is replaced before its session ends, and everything that shows the group says why.
func TestALostHostIsShownAsSilent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.joinWith("zookeeper: {session_timeout: 12s}\n", "a", "b", "c")
	f.until("the deputies are published", func(g status.Group) bool { return slices.Equal(g.Deputies, []string{"b", "c"}) })
	f.crash("a")
	g := f.until("b leads", leads("b"))
	if g.Cause != string(cluster.CauseSilent) || !strings.HasPrefix(g.Reason, "a is silent: it has not renewed its lease for ") {
		t.Errorf("%s: %s", g.Cause, g.Reason)
	}
	if !slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Node == "a" && strings.HasPrefix(m.Eligible, "silent: ") }) {
		t.Errorf("%+v", g.Members)
	}
	if c := f.snapshot().Current.Record; c.PreviousLeader != "a" || c.PreviousClean {
		t.Errorf("%+v", c)
	}
	for command, want := range map[string]string{
		"status": "Why      silent: a is silent: ", "explain": "Ranked   after the failure of a (dc1); failed sites: dc1", "history": "silent",
	} {
		f.succeedsWith(want, command)
	}
	f.start("a")
	f.until("a leads again", leads("a"))
	f.checkInvariants()
}
