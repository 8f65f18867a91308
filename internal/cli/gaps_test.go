package cli

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// gapMargin is how far a gap of the history may be from that of the ledger. The history doesn't count what a transaction takes on its
// way, and the children write every 10 ms. A busy machine delays each of these, so a part of the gap is added; what the hooks take is more.
func gapMargin(seen time.Duration) time.Duration {
	return 50*time.Millisecond + seen/7
}

// What the history says of an outage is what users of the work have seen, by the ledger of the children: from the end of the old work to
// the begin of the next. Between the two, hooks take longer than the margin, so a figure that begins or ends elsewhere is off.
func TestGapsAreThoseOfTheLedger(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, id := range []string{"a", "b", "c"} {
		f.configure(id, "dc1", 100, `hooks: {pre_start: [sleep, "0.2"], post_stop: [sleep, "0.3"]}
child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: notify}, stop_timeout: 400ms, ready: {notify: true}}
election: {exclusion: 1s}
`)
		f.start(id)
	}
	leader := f.until("one leads all", func(g status.Group) bool { return len(g.Members) == 3 && leads(g.Leader)(g) })
	f.succeedsWith(`"value": "tcp://`+leader.Leader+`:7000"`, "leader", "-o", "json")
	f.succeedsWith("Value    tcp://"+leader.Leader+":7000\n", "status")
	for _, c := range []struct {
		name  string
		bound cluster.Bound
		end   func(leader string) // ends the work of the leader
	}{
		{"a move", "", func(leader string) {
			f.succeedsWith("", "move", "--to", map[string]string{"a": "b", "b": "c", "c": "a"}[leader])
		}},
		{"a stop", "", f.stop},
		{"a lost host", cluster.BoundAtMost, f.crash},
		{"a lost host whose lease nobody watches", cluster.BoundAtLeast, f.crashUnwatched},
	} {
		for attempts := 1; ; attempts++ {
			f.until("the deputies are published", func(g status.Group) bool { return len(g.Deputies) == 2 })
			c.end(leader.Leader)
			before := leader.Leader
			leader = f.until("another one leads", func(g status.Group) bool { return g.Leader != before && leads(g.Leader)(g) })
			gap, seen := f.gaps(leader.Term)
			t.Logf("%s: %s by the history, %s by the ledger", c.name, gap.Rounded(), seen)
			select {
			case <-f.daemons[before].Done:
				f.start(before)
			default: // it has moved
			}
			f.until("all have joined", func(g status.Group) bool { return len(g.Members) == 3 && leads(leader.Leader)(g) })
			if gap.Bound == c.bound && isGapOf(gap, seen) {
				break
			}
			if attempts == 5 { // a busy machine delays one process or another, but not always
				t.Errorf("%s: %s by the history, %s by the ledger, in attempt %d", c.name, gap.Rounded(), seen, attempts)
				break
			}
		}
	}
	f.checkInvariants()
}

// isGapOf reports whether a gap is that of the ledger, or bounds it.
func isGapOf(g *cluster.Gap, seen time.Duration) bool {
	more := time.Duration(g.For) - seen // than the ledger has
	return (g.Bound == cluster.BoundAtMost || more < gapMargin(seen)) && (g.Bound == cluster.BoundAtLeast || more > -gapMargin(seen))
}

// gaps returns how long no leader's work had run before a term, by the history and by the ledger.
func (f *fleet) gaps(term int64) (*cluster.Gap, time.Duration) {
	f.t.Helper()
	var past cluster.PastTerm
	f.eventually("the history has the term", func() bool {
		out, err := f.run("history", "-o", "json", "-n", "1")
		var terms []cluster.PastTerm
		if err == nil {
			err = json.Unmarshal([]byte(out), &terms)
		}
		if err != nil {
			f.t.Fatalf("%v: %s", err, out)
		}
		if len(terms) == 0 || terms[0].Term != term {
			return false
		}
		past = terms[0]
		return true
	})
	if past.Leaderless == nil {
		f.t.Fatalf("the history does not say how long there was no leader: %+v", past)
	}
	all := ledger(f.t, f.ledgerFile())
	for i := range all {
		if all[i].term == strconv.FormatInt(term, 10) && i > 0 {
			return past.Leaderless, time.Duration(all[i].start - all[i-1].end)
		}
	}
	f.t.Fatalf("the ledger has no work of term %d after another: %+v", term, all)
	return nil, 0
}
