package sim

import (
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
)

// traits are drawn once per seed: what the world is like, and which faults it has, how often. Worlds of different kinds find
// more than worlds that are all alike.
type traits struct {
	hosts     int
	timeouts  []time.Duration
	stop      time.Duration
	takeover  time.Duration
	exclusion time.Duration
	latency   []time.Duration // the maximum for a message to or from each host
	ready     time.Duration
	turn      time.Duration // the longest time that a loop is busy
	busy      time.Duration // how long there are faults
	gap       time.Duration // between two faults, on average

	slow            float64 // a message takes up to T/3
	lateWatch       float64
	losing          bool    // some watches are lost
	lostWatch       float64 // made up for only by reading everything again
	lateWrites      float64 // a write from a lost connection arrives
	slowKill        float64
	hooks           float64
	failing         float64
	dying           float64
	jumps           time.Duration
	serverClock     int64 // the servers' clock at the start, in Unix seconds
	granting        granting
	deletedDecision float64 // elected is deleted as soon as it is written
	handoverFault   float64 // the working host is hit when another one is elected or takes over
	interrupted     float64 // an instance ends, or loses its connection, while REGISTER or ACQUIRE is under way

	weights        []float64 // of the faults, in the order of faultKinds
	total          float64
	uniform        bool
	stuck          bool // a host's child never becomes ready, until the end
	refusesRelease bool // a leader that is replaced never releases, until the end

	groups        []groupTraits
	flaky         float64 // a ranking program fails now and then
	watchedLonger bool    // stability is checked for longer (S3)
}

// groupTraits are drawn for each group.
type groupTraits struct {
	rules         []cluster.Rules // the policies that are published, the first one at the start
	noise         bool            // in the nodes' measurements, until the end
	keepsRequests bool            // operators' requests stay in force until the end
	keepsReports  bool            // so do the nodes' own reports of being unhealthy or ineligible
	noAnswer      bool            // the ranking program fails, until the end
}

func drawTraits(rng *rand.Rand, groups int) traits {
	pick := func(p, x float64) float64 {
		if rng.Float64() < p {
			return x * rng.Float64()
		}
		return 0
	}
	all := []time.Duration{4 * time.Second, 6 * time.Second, 10 * time.Second}
	t := traits{
		hosts: 2 + rng.IntN(3), stop: []time.Duration{200 * time.Millisecond, time.Second, 1500 * time.Millisecond}[rng.IntN(3)],
		takeover: []time.Duration{2 * time.Second, 5 * time.Second}[rng.IntN(2)], exclusion: []time.Duration{20 * time.Second, 10 * time.Minute}[rng.IntN(2)],
		turn:  []time.Duration{0, time.Millisecond, 50 * time.Millisecond}[rng.IntN(3)],
		ready: []time.Duration{10 * time.Millisecond, time.Second}[rng.IntN(2)],
		busy:  time.Duration(10+rng.IntN(20)) * time.Second, gap: time.Duration(200+rng.IntN(2500)) * time.Millisecond,
		slow: pick(0.4, 0.1), lateWatch: pick(0.5, 0.5), lostWatch: pick(0.2, 0.5), lateWrites: pick(0.5, 1), slowKill: pick(0.5, 1), hooks: pick(0.3, 1),
		failing: pick(0.3, 0.5), dying: pick(0.3, 0.3), handoverFault: pick(0.3, 1), uniform: rng.Float64() < 0.7, stuck: rng.Float64() < 0.2, refusesRelease: rng.Float64() < 0.2,
	}
	t.losing = t.lostWatch > 0
	if rng.Float64() < 0.2 {
		t.granting = granting(1 + rng.IntN(2))
	}
	t.deletedDecision = pick(0.1, 1)
	t.interrupted = pick(0.2, 0.5)
	if rng.Float64() < 0.3 {
		t.jumps = []time.Duration{time.Hour, 50 * 365 * 24 * time.Hour}[rng.IntN(2)]
	}
	t.serverClock = []int64{1_800_000_000, 1_800_000_000, 0, cluster.MaxClock - 3600}[rng.IntN(4)]
	t.groups = append(t.groups, drawPolicies(rng))
	t.flaky, t.watchedLonger = 0.2, rng.Float64() < 0.1
	for range groups - 1 {
		t.groups = append(t.groups, drawPolicies(rng))
	}
	if rng.Float64() < 0.05 { // long enough for damping, which ignores an elector's first minute
		t.busy, t.gap = 3*time.Minute, 3*t.gap
		for _, g := range t.groups {
			for i := range g.rules {
				g.rules[i].Failback, g.rules[i].MaxPreemptions = "", 1
			}
		}
	}
	requested := rng.Float64() < 0.5
	same := all[rng.IntN(len(all))]
	alike := rng.Float64() < 0.5
	for i := range t.hosts {
		t.latency = append(t.latency, []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond}[rng.IntN(4)])
		if alike {
			t.latency[i] = t.latency[0]
		}
		if t.uniform {
			t.timeouts = append(t.timeouts, same)
		} else {
			t.timeouts = append(t.timeouts, all[rng.IntN(len(all))])
		}
	}
	// In some worlds nearly all faults are an operator's, and the working host is hit at the worst moment.
	focused := rng.Float64() < 0.25
	if focused {
		requested = requested && rng.Float64() < 0.2
		t.handoverFault, t.slowKill = 1, 1
		if rng.Float64() < 0.5 { // and the group reacts at once
			t.turn, t.slow, t.lateWatch, t.lostWatch, t.losing = time.Millisecond, 0, 0, 0, false
			for i := range t.latency {
				t.latency[i] = min(t.latency[i], 10*time.Millisecond)
			}
		}
	}
	for _, k := range faultKinds {
		x := 0.0
		if rng.Float64() < 0.5 {
			x = rng.Float64()
		}
		if focused && !k.tampering && rng.Float64() < 0.8 {
			x = 0
		}
		if k.byOperator && !requested {
			x = 0
		}
		if k.tampering && rng.Float64() < 0.4 {
			x = 0
		}
		if k.uniform && !t.uniform {
			x = 0
		}
		t.weights = append(t.weights, x)
		t.total += x
	}
	return t
}
