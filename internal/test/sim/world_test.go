package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// world is one schedule: everything in it follows from the seed.
type world struct {
	values bool // the work changes its value
	seed   uint64
	rng    *rand.Rand
	now    time.Duration // true time; each host's clock has its own rate
	closed time.Duration // when a session last ended at the server
	queue  queue
	order  uint64
	events int
	still  int // events at the same moment

	tree  *storetest.Tree
	cache cache

	ticks     int           // how many ticks of the servers a session timeout has
	program   time.Duration // how long a ranking program takes at most, unless it fails
	leases    bool          // the hosts have lease znodes, and deputies watch them; not with breakages of something else
	rosters   bool          // the electors write rosters; not with breakages, whose schedules they would change
	heirs     bool          // the electors keep the published heirs true; not with breakages of something else
	traits    traits
	broken    breakage
	resources []*resource
	groups    []*group // of all resources
	hosts     []*host
	sessions  map[int64]*session
	all       []*session
	down      bool          // no server answers
	highest   int64         // the highest term that was decided, written or not
	excess    int64         // by how much that was over the limit when the faults stopped
	skew      time.Duration // of the clock of the server that orders writes
	emptied   bool          // the servers will have lost their data when they return
	copied    bool          // they will have a copy of its persistent znodes
	era       int           // how often they have lost it
	calm      bool          // the faults have stopped
	faults    map[string]int
	leavers   *rand.Rand     // nil unless leaders leave again and again
	lenders   *rand.Rand     // nil unless applications have leases
	fencing   *fencingTraits // nil if no host fences another
	standbys  *standbyTraits // nil if no work is promotable
	quiet     bool           // no work hangs, and nothing is restored or copied
	failsafe  *failsafeWorld
	trace     func(line string)
	failure   string
}

func newWorld(seed uint64, s shape, broken breakage, trace func(string)) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), broken: broken, trace: trace,
		tree: storetest.NewTree(), sessions: make(map[int64]*session), faults: make(map[string]int), cache: make(cache), ticks: 2, program: execTimeout / 2, rosters: broken.name == "",
		heirs:  broken.name == "" || broken.heirs || broken.leases,
		leases: broken.name == "" || broken.leases || broken.promoted || broken.calling,
	}
	w.values = s.values
	w.traits = drawTraits(w.rng, s.groups)
	if broken.granting != grantAlike {
		w.traits.granting = broken.granting
	}
	if broken.slotted {
		w.focusOnSlots()
	}
	if broken.leases {
		w.focusOnLeases()
	}
	if broken.promoted {
		w.focusOnStandbys()
	}
	if s.failsafe {
		w.focusOnFailsafe()
	}
	if broken.leaving {
		w.traits.total = 0
	}
	w.fencing, w.standbys = w.drawFencing(), w.drawStandbys()
	w.tree.Clock = w.serverTime
	setup := w.tree.Open()
	for i := range s.groups {
		r := newResource(w, i, s)
		w.resources = append(w.resources, r)
		for _, path := range r.groups[0].paths.Skeleton() {
			w.tree.Apply(setup, []cluster.Op{{Kind: cluster.OpCreate, Path: path}})
		}
	}
	w.tree.End(setup)
	for i := range w.traits.hosts {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	return w
}

// at schedules do for a time, or for now if that is in the past. Ties are broken by the order of scheduling.
func (w *world) at(at time.Duration, do func()) {
	w.order++
	w.queue.push(event{max(at, w.now), w.order, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// run runs the events until a time, or until a promise is broken.
func (w *world) run(until time.Duration) {
	at := time.Duration(-1)
	for len(w.queue) > 0 && w.queue[0].at <= until && w.failure == "" {
		e := w.queue.pop()
		w.now = e.at
		w.events++
		e.do()
		if w.still++; e.at != at {
			at, w.still = e.at, 0
		} else if w.still > 100_000 {
			w.fail("L1: time does not advance: something keeps asking to be woken at once")
		}
	}
	if w.failure == "" {
		w.now = until
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.log("FAIL: %s", w.failure)
	}
}

func (w *world) log(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%12.6f  ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// chance returns true with probability p.
func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between returns a random duration.
func (w *world) between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(w.rng.Int64N(int64(to-from)))
}

// wall returns the time for records. The protocol ignores it, so it jumps.
func (w *world) wall() time.Time {
	return time.Unix(1_800_000_000, 0).Add(w.now + w.between(-w.traits.jumps, w.traits.jumps))
}
