package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/record"
	"zkelectd/internal/test/testhelper"
)

// gapCheck compares what the histories say of outages with the ledgers: from the last line of the old work to READY of the next, which the
// recordings have. The history must never say more than that, or less if it says "at most". Only "at least" may be too long, by a lease at
// most, if somebody has removed the records of the leader, whose absence does not prove that its work has ended. An exact figure is short by what RELEASE takes on
// its way, which the recordings have as well, and by the time until the end of the work is noticed.
type gapCheck struct {
	recordings *record.Reader
	ready      map[term]time.Duration // when READY was last sent
	released   map[term]time.Duration // when RELEASE was last sent
	vacant     map[term]time.Duration // since when the member that acquired the term had read that nobody held leadership
	members    map[string]*holding    // by the incarnation
	compared   map[term]bool
	short      time.Duration // what an exact figure may be short by
	delaying   times         // faults that delay transactions, or what processes tell each other
	removing   times         // faults that remove the records of a leader, or its session, while its work runs

	mu   sync.Mutex
	late []span // in which this program did not get a processor

	exact, atLeast, atMost, loose int // how many were compared; loose is how many that may be short by any time
	worst                         time.Duration
}

// holding is what a member has read and done last.
type holding struct {
	vacant time.Duration // since when it reads that nobody holds leadership; 0 if it reads otherwise
	term   int64         // the last that it has acquired
}

type span struct{ from, to time.Duration }

// times are when there have been faults of a kind.
type times struct {
	since time.Duration // 0 for none since the fleet has settled
	spans []span
}

func (t *times) begin(at time.Duration) {
	if t.since == 0 {
		t.since = at
	}
}

func (t *times) end(at time.Duration) {
	if t.since != 0 {
		t.spans, t.since = append(t.spans, span{t.since, at}), 0
	}
}

// The margins of a gap: of clocks and the ledger's beats, and of what a figure may be short by without a reason.
const (
	gapClock = 15 * time.Millisecond
	gapShort = 50 * time.Millisecond
	// gapShortOfMany is for many groups, which end and begin their work at once.
	gapShortOfMany = 5 * gapShort
	// gapShortBusy is for a machine that is busy with other tests: make faults judges more.
	gapShortBusy = time.Second
)

func newGapCheck(recordings string) *gapCheck {
	return &gapCheck{
		recordings: record.NewReader(recordings), ready: make(map[term]time.Duration), released: make(map[term]time.Duration),
		vacant: make(map[term]time.Duration), members: make(map[string]*holding), compared: make(map[term]bool), short: gapShort,
		delaying: times{since: 1}, // as the start of all daemons at once does
	}
}

// injected notes a fault.
func (c *gapCheck) injected(name string, at time.Duration) {
	named := func(f fault) bool { return f.name == name }
	among := func(faults ...fault) bool { return slices.ContainsFunc(faults, named) }
	switch {
	case among(znodeFaults...):
		c.removing.begin(at)
	case strings.Contains(name, "SIGSTOP"), among(slices.Concat(machineFaults, networkFaults, serverFaults, groupFaults)...):
		c.delaying.begin(at)
	}
}

// watchProcessor notes when this program gets no processor, since then others don't either. Call end to end it.
func (c *gapCheck) watchProcessor() (end func()) {
	const pause = 10 * time.Millisecond
	last := boottime.Now()
	return repeatUntil(pause, func() {
		now := boottime.Now()
		if now-last > 2*pause {
			c.mu.Lock()
			c.late = append(c.late, span{last + pause, now})
			c.mu.Unlock()
		}
		last = now
	})
}

// settled compares the gaps of all terms that have not been compared, once the fleet has settled.
func (c *gapCheck) settled(camp *campaign) {
	camp.t.Helper()
	c.delaying.end(boottime.Now())
	c.removing.end(boottime.Now())
	if camp.nodes[0].fences {
		return // only fencing ends work whose processes of zkelectd are all stopped: nobody knows how long it goes on
	}
	c.short = gapShort
	if len(camp.groups) > 1 {
		c.short = gapShortOfMany
	}
	if testhelper.Race {
		c.short = gapShortBusy
	}
	if err := c.recordings.Read(c.see); err != nil {
		camp.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(camp.t.Context(), 5*time.Second)
	defer cancel()
	for _, g := range camp.groups {
		h, err := operator.ReadHistory(ctx, camp.client(ctx), g.paths, false)
		if err != nil {
			continue // at the end of the next round
		}
		all := g.readLedger()
		for _, fault := range c.compare(g.paths.Root, h.Terms, all) {
			camp.t.Errorf("%s: %s", g.name, fault)
		}
	}
}

// see takes in a line; those of one member come in their order.
func (c *gapCheck) see(l record.Line) {
	m := c.members[l.Root+l.Incarnation]
	if m == nil {
		m = new(holding)
		c.members[l.Root+l.Incarnation] = m
	}
	if l.Starts != 0 && l.Starts != m.term {
		m.term = l.Starts
		c.vacant[term{l.Root, m.term}] = m.vacant
	}
	t := term{l.Root, m.term}
	switch {
	case l.Readies != 0:
		c.ready[t] = l.At
	case l.Releases:
		c.released[t] = l.At
	case l.Event == "Saw" && len(l.Holders) > 0:
		m.vacant = 0
	case l.Event == "Saw" && m.vacant == 0:
		m.vacant = l.At
	}
}

// flights returns how long the RELEASE of a term, and of those after it until another one, have taken on their way.
func (c *gapCheck) flights(from, to term) (all time.Duration) {
	var between []int64
	for t := range c.vacant {
		if t.root == from.root && from.number < t.number && t.number <= to.number {
			between = append(between, t.number)
		}
	}
	slices.Sort(between)
	for _, number := range between {
		next := term{from.root, number}
		if sent, seen := c.released[from], c.vacant[next]; sent != 0 && seen > sent {
			all += seen - sent
		}
		from = next
	}
	return all
}

// compare compares the gaps of a group's history, and returns what is wrong.
func (c *gapCheck) compare(root string, history []cluster.PastTerm, ledger []tenure) (faults []string) {
	for i, p := range history {
		t := term{root, p.Term}
		if c.ready[t] == 0 || p.Leaderless == nil || c.compared[t] {
			continue
		}
		ends := c.ends(t, history[:i], ledger)
		if len(ends) == 0 {
			continue
		}
		c.compared[t] = true
		if fault := c.judge(p, t, ends); fault != "" {
			faults = append(faults, fault)
		}
	}
	return faults
}

// ends returns when the work of the last leader before a term may have ended, the most probable end first. A READY of unknown outcome may
// have made a leader or not.
func (c *gapCheck) ends(next term, before []cluster.PastTerm, ledger []tenure) (ends []tenure) {
	if len(ledger) == 0 || c.unwritten(next, before, ledger) {
		return nil
	}
	last := make(map[int64]tenure)
	for _, t := range ledger {
		if t.term < next.number && c.ready[term{next.root, t.term}] != 0 && t.end >= last[t.term].end {
			last[t.term] = t
		}
	}
	for _, p := range slices.Backward(before) {
		if _, worked := last[p.Term]; worked && p.Outcome == string(cluster.CurrentReady) {
			maps.DeleteFunc(last, func(t int64, _ tenure) bool { return t < p.Term }) // this one has led for sure
			break
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b tenure) int { return cmp.Compare(b.end, a.end) })
}

// unwritten reports whether the last leader before a term, or a candidate since whose READY may have had an effect, has
// ended before its work wrote a line.
func (c *gapCheck) unwritten(next term, before []cluster.PastTerm, ledger []tenure) bool {
	for _, p := range slices.Backward(before) {
		if c.ready[term{next.root, p.Term}] == 0 {
			continue
		}
		if !slices.ContainsFunc(ledger, func(t tenure) bool { return t.term == p.Term }) {
			return true
		}
		if p.Outcome == string(cluster.CurrentReady) {
			break
		}
	}
	return false
}

// judge returns what is wrong with a term's gap; the empty string if nothing is.
func (c *gapCheck) judge(p cluster.PastTerm, next term, ends []tenure) (fault string) {
	ready, said := c.ready[next], time.Duration(p.Leaderless.For)
	around := span{ends[0].end - sessionTimeout, ready}
	loose := c.overlap(c.delaying.spans, around) > 0
	most := gapClock
	if p.Leaderless.Bound == cluster.BoundAtLeast && c.overlap(c.removing.spans, around) > 0 {
		most += cluster.Lease(sessionTimeout) // nobody knows that the old work goes on
	}
	switch {
	case p.Leaderless.Bound == cluster.BoundAtLeast:
		c.atLeast++
	case loose:
		c.loose++
	case p.Leaderless.Bound == cluster.BoundAtMost:
		c.atMost++
	default:
		c.exact++
	}
	for _, old := range ends {
		seen := ready - old.end
		short := seen - said - c.flights(term{next.root, old.term}, next) - c.lateness(span{old.end, ready})
		tooLong := p.Leaderless.Bound != cluster.BoundAtMost && said > seen+most
		tooShort := p.Leaderless.Bound != cluster.BoundAtLeast && !loose && short > c.short+seen/10 // a busy machine delays each step
		if !tooLong && !tooShort {
			if p.Leaderless.Bound == "" && !loose {
				c.worst = max(c.worst, short, said-seen)
			}
			return ""
		}
		fault = cmp.Or(fault, fmt.Sprintf("term %d of %s: %s without a leader by the history, %s by the ledger, %s more than can be explained (READY at %d)",
			p.Term, p.Node, p.Leaderless.Rounded(), seen, max(short, said-seen), ready))
	}
	return fault
}

// lateness returns for how long this program got no processor in a span.
func (c *gapCheck) lateness(in span) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlap(c.late, in)
}

// overlap returns how much of a span others have, which do not overlap.
func (*gapCheck) overlap(others []span, in span) (all time.Duration) {
	for _, o := range others {
		all += max(0, min(o.to, in.to)-max(o.from, in.from))
	}
	return all
}

func (c *gapCheck) report(t *testing.T) {
	t.Helper()
	t.Logf("outages by the history and by the ledger: %d exact ones compared, worst difference %s; %d at most, %d at least, %d under faults that delay",
		c.exact, c.worst.Round(100*time.Microsecond), c.atMost, c.atLeast, c.loose)
}

// The check can fail.
func TestGapCheck(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	ledger := []tenure{{"a", 1, "1", s, 10 * s}, {"b", 2, "2", 11 * s, 12 * s}, {"c", 3, "3", 14 * s, 20 * s}}
	gap := func(d time.Duration, bound cluster.Bound) *cluster.Gap {
		return &cluster.Gap{For: cluster.Duration(d), Bound: bound}
	}
	for name, c := range map[string]struct {
		gap     *cluster.Gap
		before  string // the outcome of term 2
		delayed bool
		flight  time.Duration // of RELEASE
		ok      bool
		without bool // a line of term 1
	}{
		"exact":                         {gap(2*s, ""), "READY", false, 0, true, false},
		"a release on its way":          {gap(s, ""), "READY", false, s, true, false},
		"too short, beyond that":        {gap(s-260*ms, ""), "READY", false, s, false, false},
		"a little shorter":              {gap(2*s-240*ms, ""), "READY", false, 0, true, false},
		"too short":                     {gap(2*s-260*ms, ""), "READY", false, 0, false, false},
		"too short under a delay":       {gap(s, ""), "READY", true, 0, true, false},
		"too long":                      {gap(2*s+20*ms, ""), "READY", false, 0, false, false},
		"too long under a delay":        {gap(2*s+20*ms, ""), "READY", true, 0, false, false},
		"at least":                      {gap(s, cluster.BoundAtLeast), "READY", false, 0, true, false},
		"at least what is too long":     {gap(3*s, cluster.BoundAtLeast), "READY", true, 0, false, false},
		"at most":                       {gap(3*s, cluster.BoundAtMost), "READY", false, 0, true, false},
		"at most what is too short":     {gap(s, cluster.BoundAtMost), "READY", false, 0, false, false},
		"READY had no effect":           {gap(4*s, ""), "never READY: x", false, 0, true, false},
		"READY had an effect after all": {gap(2*s, ""), "never READY: x", false, 0, true, false},
		"neither":                       {gap(3*s, ""), "never READY: x", false, 0, false, false},
		"nobody knows when it ended":    {gap(4*s, ""), "never READY: x", false, 0, true, true},
	} {
		check := newGapCheck("")
		for n := range int64(3) {
			member := func(at time.Duration) record.Line {
				return record.Line{At: at, Root: "/r", Incarnation: string('a' + rune(n)), Event: "Saw"}
			}
			sees, starts, readies, releases := member(1), member(ledger[n].start), member(ledger[n].start), member(ledger[n].end)
			if n > 0 {
				sees.At = ledger[n-1].end + c.flight
			}
			starts.Starts, readies.Readies, releases.Releases = n+1, n+1, true
			for _, l := range []record.Line{sees, starts, readies, releases} {
				check.see(l)
			}
		}
		if c.delayed {
			check.delaying.spans = []span{{9 * s, 13 * s}}
		}
		lines := ledger
		if c.without {
			lines = ledger[1:]
		}
		history := []cluster.PastTerm{{Term: 1, Outcome: "READY"}, {Term: 2, Outcome: c.before}, {Term: 3, Outcome: "READY", Leaderless: c.gap}}
		if faults := check.compare("/r", history, lines); (len(faults) == 0) != c.ok {
			t.Errorf("%s: %q", name, faults)
		}
	}
}
