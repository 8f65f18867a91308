package status

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// The table of the members fits 80 columns. Health and eligibility are told apart, and each reason is shown once; the wide table
// has all of it in columns.
func TestNarrowTable(t *testing.T) {
	s := ready(snapshot())
	s.Elected.Record.Exclusions = nil
	s.Members[0].Node.Record.Unhealthy = "health.exec df: exit status 1"
	s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{Cordons: []cluster.Cordon{{Request: request(1, time.Now(), 0, 0), Node: "a"}}}}
	g := Of("c", "/c", s)
	_, members, _ := strings.Cut(g.Table(), "\n\n")
	for line := range strings.SplitSeq(members, "\n") {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{"HEALTH     ELIGIBLE\n", "leader   ok         no: cordoned\n", "elector  unhealthy  no: unhealthy\n", "b is unhealthy: health.exec df: exit status 1\n"} {
		if !strings.Contains(members, want) {
			t.Errorf("no %q in\n%s", want, members)
		}
	}
	for _, reason := range []string{"exit status 1", "new kernel"} {
		if n := strings.Count(g.Table(), reason); n != 1 {
			t.Errorf("%q is shown %d times:\n%s", reason, n, g.Table())
		}
	}
	for _, want := range []string{"VERDICT OF THE LAST ELECTION", "no: cordoned by ann@host: new kernel", "no: unhealthy: health.exec df: exit status 1"} {
		if !strings.Contains(g.WideTable(), want) {
			t.Errorf("no %q in\n%s", want, g.WideTable())
		}
	}
}

func TestTimesHaveZoneAndAge(t *testing.T) {
	now := time.Now().Add(-3 * time.Hour)
	if got := since(&now); !strings.HasSuffix(got, now.Local().Format(" MST")+", 3h0m ago") {
		t.Error(got)
	}
}
