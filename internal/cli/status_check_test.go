package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

func summaryOf(name, state string, eligible int, problems ...string) groupStatus {
	g := groupStatus{Name: name, Eligible: eligible, joined: true}
	g.State, g.Problems, g.Members = state, problems, make([]status.Member, 3)
	if state != status.StateNone {
		g.Leader, g.Term = "n1", 7
	}
	return g
}

func TestStatusCheck(t *testing.T) {
	t.Parallel()
	ready := string(cluster.CurrentReady)
	failing := summaryOf("f", ready, 3, "every member that could lead has failed")
	failing.Failing = "every member that could lead has failed"
	good, alone := summaryOf("a", ready, 3), summaryOf("b", ready, 1, "nobody could take over from n1: n2: un|healthy")
	none := summaryOf("c", status.StateNone, 0, "nobody leads: no daemon is registered")
	broken, unjoined := summaryOf("d", status.StateNone, 0), summaryOf("e", status.StateNone, 0)
	broken.Error, unjoined.Error, unjoined.joined = "record of a newer version", "no daemon has joined it yet", false
	takeover, paused := summaryOf("f", string(cluster.CurrentProgress), 3), summaryOf("g", ready, 3)
	paused.Requests = []status.Request{{Kind: "hard-pause", By: "ann@host"}}
	job := func(ended ...int) groupStatus {
		g := summaryOf("j", "NONE", 0, "nobody leads: no daemon is registered")
		g.Members, g.LastRun = nil, &lastRun{Node: "n1"}
		if len(ended) > 0 {
			g.LastRun.ExitStatus = &ended[0]
		}
		return g
	}
	for _, c := range []struct {
		all    []groupStatus
		status int
		want   string
	}{
		{[]groupStatus{good}, checkOK, "ZKELECTD OK - n1 leads in term 7, 3 of 3 members are eligible"},
		{[]groupStatus{failing}, checkCritical, "ZKELECTD CRITICAL - n1 leads, but may fail again: every member that could lead has failed"},
		{[]groupStatus{alone}, checkWarning, "ZKELECTD WARNING - nobody could take over from n1: n2: un/healthy"},
		{[]groupStatus{none}, checkCritical, "ZKELECTD CRITICAL - no leader; nobody leads: no daemon is registered"},
		{[]groupStatus{broken}, checkUnknown, "ZKELECTD UNKNOWN - record of a newer version"},
		{[]groupStatus{unjoined}, checkCritical, "ZKELECTD CRITICAL - no leader: no daemon has joined it yet"},
		{[]groupStatus{takeover}, checkWarning, "ZKELECTD WARNING - no leader: n1 is taking over"},
		{[]groupStatus{paused}, checkWarning, "ZKELECTD WARNING - PAUSED HARD, a leader that fails is not replaced, by ann@host"},
		{[]groupStatus{good, good}, checkOK, "ZKELECTD OK - each of 2 groups has a READY leader and an eligible standby"},
		{[]groupStatus{good, alone, broken}, checkUnknown, "ZKELECTD UNKNOWN - 1 of 3 groups: d (record"},
		{[]groupStatus{broken, none, good}, checkCritical, "ZKELECTD CRITICAL - 1 of 3 groups: c (no leader"},
		{nil, checkCritical, "ZKELECTD CRITICAL - there are no groups"},
		{[]groupStatus{job(0)}, checkOK, "ZKELECTD OK - the last run of the job, "},
		{[]groupStatus{good, job(0)}, checkOK, "ZKELECTD OK - each of 2 groups"},
		{[]groupStatus{job(3)}, checkWarning, "ZKELECTD WARNING - the last run of the job, "},
		{[]groupStatus{job()}, checkWarning, "ZKELECTD WARNING - the last run of the job, "},
	} {
		got := checkSummaries(c.all)
		if got.status != c.status || !strings.HasPrefix(got.String(), c.want) {
			t.Errorf("got %d, %s, want %d, %s", got.status, got, c.status, c.want)
		}
	}
	if got := checkFigures([]groupStatus{good, alone, none}); got != "groups=3 ready=2 members=3 eligible=0 problems=2" {
		t.Errorf("figures: %s", got)
	}
}
