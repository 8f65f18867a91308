package faults

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition/failsafe"
)

var outageCount = flag.Int("faults.outages", 2, "the number of outages of all servers in failsafe mode; the first kinds come in order, further ones at random")

// outageSession is the session timeout in fleets with failsafe mode, T. It is longer than that of the others: rounds go through one member
// after another that may be late on a slow machine.
const outageSession = 4 * time.Second

// slack is how late the work may stop on a slow machine, beyond the lease and the kill margin.
const slack = time.Second

// outage is a kind of outage, with another fault in most cases. T is the session timeout.
type outage struct {
	name string
	// before prepares it while the servers answer; nil for nothing.
	before func(*outages) (heal func())
	// during injects a further fault during the outage; nil for none. It returns whether a leader on this node must stop then; nil if
	// anything may happen.
	during func(*outages) (heal func(), stops func(leader *node) bool)
	// long is set for an outage of 10 T in which nobody may stop.
	long bool
	// ways are how the servers become unreachable, and ends in which order all comes back; nil for any.
	ways []way
	ends []end
}

// way is how servers become unreachable for the nodes.
type way struct {
	name string
	down func(*outages) (up func())
	// keeps is set if no session can expire in the meantime.
	keeps bool
}

// end is the end of an outage. up makes the servers reachable, heal ends the other faults.
type end struct {
	name string
	// orderly is set if all sessions have time enough to be continued.
	orderly bool
	run     func(o *outages, up, heal func())
}

// outages is a campaign of outages.
type outages struct {
	*campaign
	expired int             // how many leaders' sessions have expired at the end of an outage
	kept    int             // how often a leader has worked on through a whole outage
	ended   map[string]int  // by the end's name
	stopped []time.Duration // how long after a fault the work had stopped
	answers *answers
	doubts  []doubt
}

// Leaders in failsafe mode work on through outages of ZooKeeper as long as all members promise, and stop when one does not. Whatever
// happens, S1 holds.
func TestOutages(t *testing.T) {
	n := *outageCount
	groups := 2
	if n > 20 {
		groups = 4
	}
	if testhelper.Race {
		n = min(n, 2)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	f := newFleet(t, fleetOptions{binary: testhelper.BuildZkelectd(t, binDir, "record"), seed: *seed, groups: groups, failsafe: true})
	o := &outages{campaign: &campaign{fleet: f, began: time.Now(), injected: make(map[string]int), settled: make(map[string][]time.Duration)}, ended: make(map[string]int)}
	o.settle()
	var end func()
	o.answers, end = f.watchAnswers()
	t.Cleanup(end) // before the servers are stopped
	for i := 0; i < n; i++ {
		kind := outageKinds[i%len(outageKinds)]
		if i >= len(outageKinds) {
			kind = outageKinds[f.rng.IntN(len(outageKinds))]
		}
		if *only != "" && !strings.Contains(kind.name, *only) {
			n++
			continue
		}
		o.run(kind)
		o.settle()
		f.checkLedgers()
	}
	o.report()
	t.Logf("the work that had to stop was dead after %s (%d times); leaders that have worked on through an outage: %d, whose sessions had expired: %d; ends: %v",
		summary(o.stopped), len(o.stopped), o.kept, o.expired, o.ended)
	f.checkRecordings()
	o.checkDoubts()
}

// Members that promise whatever they are asked, and take over all the same, have a leader work on that alone is cut off. The campaign must
// notice that.
func TestOutagesNoticeBrokenPromises(t *testing.T) {
	f := newFleet(t, fleetOptions{binary: testhelper.BuildZkelectd(t, binDir, "record,brokenpromises"), seed: 1, groups: 2, failsafe: true})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := f.groups[0]
	heal := cutServers(faultproxy.BlackHole, g.working())
	g.waitForOverlap()
	heal()
}

// pick returns one of some, or of all if there are none.
func pick[T any](rng *rand.Rand, some, all []T) T {
	if len(some) == 0 {
		some = all
	}
	return some[rng.IntN(len(some))]
}

// run lets the servers be away for a while.
func (o *outages) run(k outage) {
	w, e := pick(o.rng, k.ways, ways), pick(o.rng, k.ends, ends)
	o.t.Logf("%s: %s; %s", k.name, w.name, e.name)
	heal := noHeal
	if k.before != nil {
		heal = k.before(o)
	}
	o.note(k, w, e)
	before := o.works()
	began := boottime.Now()
	up := w.down(o)
	switch {
	case k.during == nil:
		o.wait(o.lasts(k))
	default:
		o.wait(outageSession/2 + time.Duration(o.rng.Int64N(int64(outageSession))))
		o.mustGoOn(before, "before the fault")
		at := boottime.Now()
		more, stops := k.during(o)
		heal = both(more, heal)
		if stops != nil {
			o.mustStop(before, at, w.name == "", stops)
		}
		o.wait(time.Duration(o.rng.Int64N(int64(2 * outageSession))))
	}
	if k.during == nil {
		o.mustGoOn(before, "during the outage")
		o.controlMustStop(before)
	}
	o.t.Logf("the outage ends after %s", (boottime.Now() - began).Round(time.Millisecond))
	e.run(o, up, heal)
	if w.name != "" {
		o.answers.cutOff(boottime.Now())
	}
	if k.during == nil {
		if _, err := o.converge(o.t.Context()); err != nil {
			o.t.Error(err)
		}
		o.mustHaveGoneOn(before, w.keeps && e.orderly)
	}
}

// note counts the faults of an outage.
func (o *outages) note(k outage, w way, e end) {
	o.since = append(o.since, k.name)
	o.ended[e.name]++
	if w.name != "" {
		o.injected[w.name]++
	}
	if k.during != nil || k.before != nil {
		o.injected[k.name]++
	}
}

func both(first, second func()) func() {
	return func() {
		first()
		second()
	}
}

// lasts returns how long an outage without further faults lasts.
func (o *outages) lasts(k outage) time.Duration {
	switch {
	case testhelper.Race:
		return 3 * outageSession
	case k.long:
		return 10 * outageSession
	}
	return outageSession + time.Duration(o.rng.Int64N(int64(4*outageSession)))
}

// work is the work of a group at one moment.
type work struct {
	leader  *node
	child   int
	session int64
	term    int64
	cause   cluster.Cause
}

// works returns the work of all groups, which have settled.
func (o *outages) works() map[*group]work {
	all := make(map[*group]work)
	for _, g := range o.groups {
		snap, err := store.ReadAll(o.t.Context(), o.client(o.t.Context()), g.paths, false)
		if err != nil {
			o.t.Fatal(err)
		}
		w := work{leader: g.leader(), session: snap.Current.Stat.Owner, term: snap.Elected.Record.Term, cause: snap.Elected.Record.Cause}
		w.child = w.leader.child(g)
		all[g] = w
	}
	return all
}

// mustGoOn checks that the work of all groups in failsafe mode is still the one from before.
func (o *outages) mustGoOn(before map[*group]work, when string) {
	o.t.Helper()
	for g, w := range before {
		if now := w.leader.child(g); g.failsafe && now != w.child {
			o.doubt(g, w.leader, preempted(w.term, boottime.Now()), "%s the work of %s in term %d has stopped (process %d, now %d)", when, w.leader.id, w.term, w.child, now)
		}
	}
}

// mustHaveGoneOn checks after an outage that the work of no group in failsafe mode was started again, unless the leader's session has expired.
func (o *outages) mustHaveGoneOn(before map[*group]work, keeps bool) {
	o.t.Helper()
	now := o.works()
	for g, w := range before {
		switch {
		case !g.failsafe:
		case now[g] == w:
			o.kept++
		case follows(now[g].term, w.term) && now[g].cause == cluster.CausePreempt: // by a better one that has come back
			o.kept++
		case now[g].session != w.session && !keeps:
			o.kept, o.expired = o.kept+1, o.expired+1
		default:
			o.doubt(g, w.leader, preempted(w.term, boottime.Now()), "after the outage %+v leads, before it was %+v", now[g], w)
		}
	}
}

// controlMustStop checks that the work of the group without failsafe mode has stopped: otherwise there was no outage.
func (o *outages) controlMustStop(before map[*group]work) {
	o.t.Helper()
	for g, w := range before {
		if !g.failsafe && w.leader.child(g) != 0 {
			o.t.Errorf("%s: the outage has not stopped the work of %s, which is not in failsafe mode", g.name, w.leader.id)
		}
	}
}

// mustStop waits until the leases are over, and checks that the work of those leaders has stopped that must, and that of the others not.
func (o *outages) mustStop(before map[*group]work, at time.Duration, cut bool, stops func(*node) bool) {
	o.t.Helper()
	b, err := cluster.NewBudget(outageSession, 0, 300*time.Millisecond)
	if err != nil {
		o.t.Fatal(err)
	}
	takes := b.Lease + b.Kill + slack
	stopped := func(g *group) bool { return before[g].leader.child(g) != before[g].child }
	dead, alive := make(map[*group]bool), make(map[*group]time.Duration)
	all := func() bool { // that must stop have stopped
		for g, w := range before {
			if !g.failsafe || !stops(w.leader) || dead[g] {
				continue
			}
			now := boottime.Now()
			if dead[g] = stopped(g); dead[g] {
				o.stopped = append(o.stopped, boottime.Now()-at)
			} else {
				alive[g] = now
			}
		}
		return !slices.ContainsFunc(o.groups, func(g *group) bool { return g.failsafe && stops(before[g].leader) && !dead[g] })
	}
	for boottime.Now() < at+takes {
		all()
		o.wait(10 * time.Millisecond)
	}
	if cut {
		o.mustStopAfterStall(before, at, takes, alive, all)
	}
	for g, w := range before {
		switch now := stopped(g); {
		case !g.failsafe || now == stops(w.leader):
		case now:
			o.doubt(g, w.leader, preempted(w.term, boottime.Now()), "%s after the fault the work of %s has stopped", boottime.Now()-at, w.leader.id)
		default:
			o.t.Errorf("%s: %s after the fault the work of %s has not stopped", g.name, boottime.Now()-at, w.leader.id)
		}
	}
}

// mustStopAfterStall waits longer if ZooKeeper itself has answered nobody: then members promise as in an outage, and for a session timeout
// after it. The recordings must show that they did, as long as the leader went on. alive is when each work was last seen, which all updates.
func (o *outages) mustStopAfterStall(before map[*group]work, at, takes time.Duration, alive map[*group]time.Duration, all func() bool) {
	o.t.Helper()
	for limit := at + settleTimeout; !all() && boottime.Now() < limit; o.wait(10 * time.Millisecond) {
		stall := o.answers.lastStall(boottime.Now())
		if stall < at-outageSession || boottime.Now() > stall+failsafe.Patience(cluster.Lease(outageSession))+outageSession+takes {
			break
		}
	}
	for g, w := range before {
		if seen := alive[g]; seen > at+takes && w.leader.child(g) != w.child {
			o.doubt(g, w.leader, promised(at, seen, takes), "the work of %s was still seen %s after the fault; the servers had last answered nobody at %s after it",
				w.leader.id, seen-at, o.answers.lastStall(boottime.Now())-at)
		}
	}
}

// follower returns a node that leads no group, if there is one.
func (o *outages) follower() *node {
	leads := func(n *node) bool {
		return slices.ContainsFunc(o.groups, func(g *group) bool { return n.child(g) != 0 })
	}
	if all := slices.DeleteFunc(o.present(), leads); len(all) > 0 {
		return all[o.rng.IntN(len(all))]
	}
	return o.anyNode()
}

// others returns whether a leader is another node than n.
func others(n *node) func(*node) bool { return func(leader *node) bool { return leader != n } }

// cutPeers sets the mode of the connections of other nodes to some.
func cutPeers(m faultproxy.Mode, nodes ...*node) (heal func()) {
	var proxies []*faultproxy.Proxy
	for _, n := range nodes {
		proxies = append(proxies, n.peer.Proxy)
	}
	return setModes(m, proxies...)
}

// cutServers sets the mode of the connections of some nodes to the servers.
func cutServers(m faultproxy.Mode, nodes ...*node) (heal func()) {
	return setModes(m, serversOf(nodes...)...)
}

var outageKinds = []outage{
	{name: "all members work", long: true, ways: ways[:1], ends: ends[:1]},
	{name: "a member is lost during the outage", during: loseMember},
	{name: "a member was lost long before", long: true, before: loseMemberBefore, ways: ways[:2]},
	{name: "a member does not hear the leader", during: cutMember(faultproxy.HoldToTarget)},
	{name: "a member's promises do not arrive", during: cutMember(faultproxy.HoldFromTarget)},
	{name: "a member is cut off from the others", during: cutMember(faultproxy.BlackHole)},
	{name: "all are cut off from each other", during: cutAll},
	{name: "a member's daemon stands still", during: stopMember},
	{name: "the servers are reached by no daemon", ways: ways[3:], long: true},
	{name: "slow connections between members", before: delayPeers, long: true},
	{name: "rolling restart of the daemons", during: duringOutage(restartDaemons)},
	{name: "several daemons end", during: duringOutage(stopSeveral)},
	{name: "the leader's host is lost", during: loseLeader},
	{name: "the leader's daemon dies", during: duringOutage(kill(daemonProcess))},
	{name: "the leader's work dies", during: duringOutage(kill(childProcess))},
	{name: "random faults", during: randomFaults},
	{name: "the leader alone is cut off", ways: noOutage, during: cutLeader},
	{name: "the leader and a member are cut off", ways: noOutage, during: cutTwo},
	{name: "the leader alone is cut off, and ZooKeeper pauses", ways: noOutage, during: cutLeaderInAPause},
	{name: "all members work, any outage"},
}

func loseMember(o *outages) (func(), func(*node) bool) {
	n := o.follower()
	return n.lose(), others(n)
}

// loseMemberBefore waits until nobody counts on a lost member.
func loseMemberBefore(o *outages) func() {
	heal := o.follower().lose()
	o.settle()
	return heal
}

func cutMember(m faultproxy.Mode) func(o *outages) (func(), func(*node) bool) {
	return func(o *outages) (func(), func(*node) bool) {
		n := o.follower()
		return cutPeers(m, n), others(n)
	}
}

func cutAll(o *outages) (func(), func(*node) bool) {
	return cutPeers(faultproxy.BlackHole, o.nodes...), func(*node) bool { return true }
}

func stopMember(o *outages) (func(), func(*node) bool) {
	n := o.follower()
	pids := n.pids()[daemonProcess]
	signal(syscall.SIGSTOP, pids...)
	return func() { signal(syscall.SIGCONT, pids...) }, others(n)
}

// delayPeers adds some delay to all messages between nodes.
func delayPeers(o *outages) func() {
	for _, n := range o.nodes {
		n.peer.Seed(o.rng.Uint64())
		n.peer.SetDelay(outageSession / 60)
	}
	return cutPeers(faultproxy.Jitter, o.nodes...)
}

// duringOutage injects one of the campaign's faults.
func duringOutage(inject func(*fleet) (func(), error)) func(o *outages) (func(), func(*node) bool) {
	return func(o *outages) (func(), func(*node) bool) {
		heal, err := inject(o.fleet)
		if err != nil {
			o.t.Logf("no fault: %v", err)
			return noHeal, nil
		}
		return heal, nil
	}
}

// loseLeader loses a leader's host, which is a member of the other groups.
func loseLeader(o *outages) (func(), func(*node) bool) {
	return o.groups[0].leader().lose(), func(*node) bool { return true }
}

// cutLeader cuts a leader off from the servers alone: the others must refuse to promise. Leaders on other nodes must not notice.
func cutLeader(o *outages) (func(), func(*node) bool) { return cutSome(o.groups[0].leader()) }

// cutLeaderInAPause lets the servers answer nobody for the first lease as well: then the members do promise, but not for ever.
func cutLeaderInAPause(o *outages) (func(), func(*node) bool) {
	heal, stops := cutLeader(o)
	resume := pauseServers(o)
	o.wait(cluster.Lease(outageSession))
	resume()
	return heal, stops
}

func cutTwo(o *outages) (func(), func(*node) bool) {
	return cutSome(o.groups[0].leader(), o.follower())
}

func cutSome(nodes ...*node) (func(), func(*node) bool) {
	return cutServers(faultproxy.BlackHole, nodes...), func(leader *node) bool { return slices.Contains(nodes, leader) }
}

// randomFaults injects some faults of all kinds that are possible without ZooKeeper.
func randomFaults(o *outages) (func(), func(*node) bool) {
	kinds := slices.Concat(processFaults, stopFaults, machineFaults, networkFaults, peerFaults)
	heal := noHeal
	for range 1 + o.rng.IntN(5) {
		k := kinds[o.rng.IntN(len(kinds))]
		more, err := k.inject(o.fleet)
		if err != nil {
			continue
		}
		o.t.Log(k.name)
		o.injected[k.name]++
		o.since = append(o.since, k.name)
		heal = both(more, heal)
		o.wait(time.Duration(o.rng.Int64N(int64(outageSession / 2))))
	}
	return heal, nil
}

// peerFaults affect the connections between nodes.
var peerFaults = []fault{
	{"a node refuses connections of others", setPeerMode(faultproxy.Refuse)},
	{"black hole between a node and others", setPeerMode(faultproxy.BlackHole)},
	{"half-open connections between nodes", setPeerMode(faultproxy.HalfOpen)},
	{"uneven delays between nodes", setPeerMode(faultproxy.Jitter)},
	{"losses between nodes", setPeerMode(faultproxy.Lossy)},
	{"requests for promises held back, then delivered", setPeerMode(faultproxy.HoldToTarget)},
	{"promises held back, then delivered", setPeerMode(faultproxy.HoldFromTarget)},
}

func setPeerMode(m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.anyNode()
		n.peer.Seed(f.rng.Uint64())
		n.peer.SetDelay(time.Duration(5+f.rng.IntN(395)) * time.Millisecond)
		return cutPeers(m, n), nil
	}
}

// ways are how an outage of all servers begins. Sessions survive the first two: nobody counts the time.
var ways = []way{
	{"all servers killed", killServers, true},
	{"quorum lost", loseMostServers, true},
	{"all servers stand still", pauseServers, false},
	{"all daemons cut off", func(o *outages) func() { return cutServers(faultproxy.Refuse, o.nodes...) }, false},
	{"black hole between all daemons and servers", func(o *outages) func() { return cutServers(faultproxy.BlackHole, o.nodes...) }, false},
}

// noOutage is for faults that members must not take for an outage.
var noOutage = []way{{"", func(*outages) func() { return noHeal }, false}}

func killServers(o *outages) func() {
	for _, s := range o.ensemble.Servers {
		s.Kill()
	}
	return o.startServers
}

func loseMostServers(o *outages) func() {
	up, err := loseQuorum(o.fleet)
	if err != nil {
		o.t.Fatal(err)
	}
	return up
}

func pauseServers(o *outages) func() {
	for _, s := range o.ensemble.Servers {
		s.Pause()
	}
	return func() {
		for _, s := range o.ensemble.Servers {
			s.Resume()
		}
	}
}

// ends are the orders in which all comes back.
var ends = []end{
	{"all at once", true, func(_ *outages, up, heal func()) {
		up()
		heal()
	}},
	{"other faults end first", true, func(o *outages, up, heal func()) {
		heal()
		o.wait(time.Duration(o.rng.Int64N(int64(2 * outageSession))))
		up()
	}},
	{"servers first", true, func(o *outages, up, heal func()) {
		up()
		o.wait(time.Duration(o.rng.Int64N(int64(4 * outageSession))))
		heal()
	}},
	{"servers one after the other", true, func(o *outages, up, heal func()) {
		for _, i := range o.rng.Perm(len(o.ensemble.Servers)) {
			if err := o.ensemble.Servers[i].EnsureStarted(); err != nil {
				o.t.Error(err)
			}
			o.wait(time.Duration(o.rng.Int64N(int64(outageSession))))
		}
		up()
		heal()
	}},
	{"members in random order", false, func(o *outages, up, heal func()) {
		cutServers(faultproxy.Refuse, o.nodes...)
		up()
		cutServers(faultproxy.Refuse, o.nodes...) // up may have joined them
		o.wait(time.Duration(o.rng.Int64N(int64(2 * outageSession))))
		for _, i := range o.rng.Perm(len(o.nodes)) {
			o.wait(time.Duration(o.rng.Int64N(int64(outageSession))))
			cutServers(faultproxy.Pass, o.nodes[i])()
		}
		heal()
	}},
}
