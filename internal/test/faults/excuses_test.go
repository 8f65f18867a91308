package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/record"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition/failsafe"
)

// answers is whether the servers answer the campaign, which is no daemon: a slow machine can keep ZooKeeper from answering anybody for long
// enough that members rightly promise although no fault was injected.
type answers struct {
	limit time.Duration // an answer that takes longer shows that there was none

	mu      sync.Mutex
	asked   time.Duration // when the write without an answer was sent; 0 if there is none
	stalled time.Duration // until when the servers have answered nobody, or not the daemons; 0 if they always have
}

// lastStall returns until when the servers have last answered nobody: now if they do not answer; 0 if they always have.
func (a *answers) lastStall(now time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked != 0 && now >= a.asked+a.limit {
		return now
	}
	return a.stalled
}

func (a *answers) ask(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == 0 {
		a.asked = now
	}
}

func (a *answers) answered(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now >= a.asked+a.limit {
		a.stalled = now
	}
	a.asked = 0
}

// cutOff notes that an outage has ended, whatever the campaign itself has noticed.
func (a *answers) cutOff(now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stalled = max(a.stalled, now)
}

// watchAnswers sends a write every 20 ms, and notes how long the servers take. Call end to end it.
func (f *fleet) watchAnswers() (a *answers, end func()) {
	a = &answers{limit: failsafe.Patience(cluster.Lease(outageSession)) * 3 / 4} // a member is asked again and again, and may see less of it
	session, err := f.open(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	stop := repeatUntil(20*time.Millisecond, func() {
		a.ask(boottime.Now())
		if session.Err() != nil {
			next, err := f.open(ctx)
			if err != nil {
				return
			}
			session = next
		}
		if _, err := session.Do(ctx, cluster.Op{Kind: cluster.OpCheck, Path: root, Version: cluster.AnyVersion}); err == nil {
			a.answered(boottime.Now())
		}
	})
	return a, func() {
		cancel()
		stop()
		session.Close(context.WithoutCancel(ctx))
	}
}

// doubt is something that only the recording of the leader can excuse. An overlap is never excused.
type doubt struct {
	group   *group
	leader  *node
	what    string
	excused func(recorded) bool
}

// recorded is what a node has recorded about a group.
type recorded struct {
	// replaced is, by the term, when the node has first known that the elector had chosen another node because that is better.
	replaced map[int64]time.Duration
	// extended are the times at which promises have extended the lease, in their order.
	extended []time.Duration
}

// decisions are what all nodes have recorded about who was elected in each term of a group.
type decisions struct {
	last map[int64]decision // the last that an elector made for the term
	read map[int64]decision // what somebody has read
}

// decision is an election. at is when its elector made it, by; both are zero for one that was read.
type decision struct {
	node, cause, by string
	at              time.Duration
}

// preempted excuses that a leader has stopped its work: it knew by then that the elector had chosen a better node.
func preempted(term int64, by time.Duration) func(recorded) bool {
	return func(r recorded) bool {
		for next, at := range r.replaced {
			if follows(next, term) && at <= by {
				return true
			}
		}
		return false
	}
}

// follows reports whether next is the term after another one. If the clock is ahead, it is a multiple of 64 higher
// (docs/protocol.md, Terms).
func follows(next, term int64) bool { return next > term && (next-term)%64 == 1 }

// promised excuses that a leader, which has no other lease after from, still works at a time: all members have promised that again and
// again, so that the work has never gone on for longer than it takes to stop it after a promise.
func promised(from, to, takes time.Duration) func(recorded) bool {
	return func(r recorded) bool {
		last := from
		for _, at := range r.extended {
			if last <= at && at <= min(to, last+takes) {
				last = at
			}
		}
		return last > from && to <= last+takes
	}
}

// see takes in a line of any node.
func (all *decisions) see(l record.Line) {
	if l.Read != nil {
		all.read[l.Read.Term] = decision{node: l.Read.Node, cause: l.Read.Cause}
	}
	if d := l.Decided; d != nil && l.At >= all.last[d.Term].at {
		all.last[d.Term] = decision{d.Node, d.Cause, l.Node, l.At}
	}
}

// written returns when a node has made decisions that were written, by the term: somebody has read them, and nobody has decided again for
// that term, which no elector does that has read an earlier decision.
func (all *decisions) written(by string) map[int64]decision {
	written := make(map[int64]decision)
	for term, d := range all.last {
		if r := all.read[term]; d.by == by && r.node == d.node && r.cause == d.cause {
			written[term] = d
		}
	}
	return written
}

// decided adds what the node itself has decided, and written: it may have stopped before it has read that.
func (r *recorded) decided(written map[int64]decision) {
	for term, d := range written {
		r.replace(term, d)
	}
}

func (r *recorded) replace(term int64, d decision) {
	if at, known := r.replaced[term]; d.cause == string(cluster.CausePreempt) && d.node != d.by && (!known || d.at < at) {
		r.replaced[term] = d.at
	}
}

// see takes in a line of the node.
func (r *recorded) see(l record.Line) {
	if l.Read != nil {
		r.replace(l.Read.Term, decision{l.Read.Node, l.Read.Cause, l.Node, l.At})
	}
	if l.Event == "RoundReply" && l.Lease != 0 {
		r.extended = append(r.extended, l.At)
	}
}

// recorded returns what a node has recorded about a group.
func (n *node) recorded(g *group) (recorded, error) {
	r := recorded{replaced: make(map[int64]time.Duration)}
	all := decisions{make(map[int64]decision), make(map[int64]decision)}
	err := record.Read(n.f.recordings(), func(l record.Line) {
		if l.Root != g.paths.Root {
			return
		}
		all.see(l)
		if l.Node == n.id {
			r.see(l)
		}
	})
	r.decided(all.written(n.id))
	slices.Sort(r.extended)
	return r, err
}

// doubt notes what the recording must excuse.
func (o *outages) doubt(g *group, leader *node, excused func(recorded) bool, format string, args ...any) {
	o.t.Helper()
	d := doubt{g, leader, fmt.Sprintf(format, args...), excused}
	o.t.Logf("%s: to be excused by the recording of %s: %s", g.name, leader.id, d.what)
	o.doubts = append(o.doubts, d)
}

// checkDoubts fails for what no recording excuses. The fleet must have been shut down.
func (o *outages) checkDoubts() {
	o.t.Helper()
	for _, d := range o.doubts {
		r, err := d.leader.recorded(d.group)
		if err != nil {
			o.t.Errorf("%s: the recording of %s: %v", d.group.name, d.leader.id, err)
		}
		if !d.excused(r) {
			report := o.t.Errorf
			if testhelper.Race { // the processors are busy with other tests: make outages judges that on a quiet machine
				report = o.t.Logf
			}
			report("%s: %s (the recording of %s shows no reason: replaced %v, lease extended by promises %d times)", d.group.name, d.what, d.leader.id, r.replaced, len(r.extended))
		}
	}
}

// The recording excuses only what it shows.
func TestRecordingExcuses(t *testing.T) {
	r := recorded{replaced: make(map[int64]time.Duration)}
	all := decisions{make(map[int64]decision), make(map[int64]decision)}
	at := func(s int) time.Duration { return time.Minute + time.Duration(s)*time.Second }
	read := func(s int, by string, term int64, node, cause string) record.Line {
		return record.Line{At: at(s), Node: by, Event: "Saw", Read: &record.Decision{Term: term, Node: node, Cause: cause}}
	}
	decided := func(s int, by string, term int64) record.Line {
		return record.Line{At: at(s), Node: by, Decided: &record.Decision{Term: term, Node: "n2", Cause: "preempt"}}
	}
	for _, l := range []record.Line{
		read(1, "n1", 7, "n1", "failure"),
		read(2, "n1", 9, "n2", "move"),
		read(3, "n1", 11, "n1", "preempt"),
		read(4, "n1", 8, "n2", "preempt"),
		decided(5, "n1", 8),
		{At: at(6), Node: "n1", Event: "RoundReply"},
		{At: at(7), Node: "n1", Event: "RoundReply", Lease: 1},
		{At: at(8), Node: "n1", Event: "RenewDone", Lease: 1},
		{At: at(9), Node: "n1", Event: "RoundReply", Lease: 1},
		// Written, and read by the new leader only.
		decided(1, "n1", 21),
		read(9, "n2", 21, "n2", "preempt"),
		// Never written.
		decided(1, "n1", 23),
		// Written by another elector, for another reason, or again.
		decided(1, "n1", 25),
		read(9, "n2", 25, "n3", "preempt"),
		decided(1, "n1", 27),
		read(9, "n2", 27, "n2", "failure"),
		decided(1, "n1", 29),
		decided(8, "n3", 29),
		read(9, "n2", 29, "n2", "preempt"),
	} {
		all.see(l)
		if l.Node == "n1" {
			r.see(l)
		}
	}
	r.decided(all.written("n1"))
	for name, c := range map[string]struct{ got, want bool }{
		"replaced":                {preempted(7, at(4))(r), true},
		"not yet replaced":        {preempted(7, at(3))(r), false},
		"another term":            {preempted(6, at(9))(r), false},
		"the clock was ahead":     {preempted(20-64, at(1))(r), true},
		"moved":                   {preempted(8, at(9))(r), false},
		"chosen again":            {preempted(10, at(9))(r), false},
		"decided and written":     {preempted(20, at(1))(r), true},
		"not yet decided":         {preempted(20, at(0))(r), false},
		"never written":           {preempted(22, at(9))(r), false},
		"written otherwise":       {preempted(24, at(9))(r), false},
		"for another reason":      {preempted(26, at(9))(r), false},
		"decided again":           {preempted(28, at(9))(r), false},
		"promised":                {promised(at(6), at(8), 2*time.Second)(r), true},
		"promised twice":          {promised(at(6), at(11), 2*time.Second)(r), true},
		"promised before":         {promised(at(10), at(11), 2*time.Second)(r), false},
		"promised too long ago":   {promised(at(6), at(12), 2*time.Second)(r), false},
		"promised only later":     {promised(at(1), at(6), 9*time.Second)(r), false},
		"promised after a gap":    {promised(at(4), at(8), 2*time.Second)(r), false},
		"promised with a gap":     {promised(at(6), at(10), 1500*time.Millisecond)(r), false},
		"promised by a long kill": {promised(at(6), at(16), 9*time.Second)(r), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: excused %t", name, c.got)
		}
	}
}

func TestAnswers(t *testing.T) {
	a := &answers{limit: 10}
	for i, s := range []struct {
		do   func(time.Duration)
		at   time.Duration
		want time.Duration
	}{
		{a.ask, 100, 0}, {a.answered, 105, 0}, {a.ask, 110, 0}, {a.ask, 115, 0}, {a.ask, 120, 120}, {a.answered, 130, 130}, {a.ask, 140, 130}, {a.answered, 141, 130},
		{a.cutOff, 150, 150}, {a.cutOff, 149, 150},
	} {
		if s.do(s.at); a.lastStall(s.at) != s.want {
			t.Errorf("step %d: %d, want %d", i, a.lastStall(s.at), s.want)
		}
	}
}
