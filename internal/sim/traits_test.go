package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// traits are what a seed draws once: how its world is, and which faults it has, how often. Seeds that differ in kind find
// more than seeds that are all alike.
type traits struct {
	hosts     int
	timeouts  []time.Duration
	stop      time.Duration
	takeover  time.Duration
	exclusion time.Duration
	latency   []time.Duration // of a message, at most, to or from each host
	ready     time.Duration
	turn      time.Duration // a loop is busy for so long at most
	busy      time.Duration // how long faults happen
	gap       time.Duration // between two

	slow        float64 // a message takes up to T/3
	lateWatch   float64
	losing      bool    // some watches
	lostWatch   float64 // only the slow reading of everything makes up for it
	ghosts      float64 // a write of a lost connection arrives
	slowKill    float64
	hooks       float64
	failing     float64
	dying       float64
	jumps       time.Duration
	serverClock int64 // what the servers' clock shows when it begins, in Unix seconds
	granting    granting
	trusts      []bool  // whether a host takes the end of a session for the end of the work
	snatch      float64 // elected is deleted as soon as it is written
	ambush      float64 // whoever works when somebody else is elected, or takes over, is hit soon after

	weights []float64 // of the faults, as in faultKinds
	total   float64
	uniform bool
	stuck   bool // a host never gets its child ready, to the end
	clings  bool // a leader that is to be replaced never lets go, to the end

	rules   []cluster.Rules // of the policies that are published, the first at the start
	noise   bool            // in what the nodes measure, to the end
	keeps   bool            // what operators asked for stays in force to the end
	ill     bool            // so does what ails the nodes
	mute    bool            // the exec policy's program fails, to the end
	flaky   float64         // it fails now and then
	patient bool            // it is watched for longer that nothing moves (S3)
}

func drawTraits(rng *rand.Rand) traits {
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
		slow: pick(0.4, 0.1), lateWatch: pick(0.5, 0.5), lostWatch: pick(0.2, 0.5), ghosts: pick(0.5, 1), slowKill: pick(0.5, 1), hooks: pick(0.3, 1),
		failing: pick(0.3, 0.5), dying: pick(0.3, 0.3), ambush: pick(0.3, 1), uniform: rng.Float64() < 0.7, stuck: rng.Float64() < 0.2, clings: rng.Float64() < 0.2,
	}
	t.losing = t.lostWatch > 0
	if rng.Float64() < 0.2 {
		t.granting = granting(1 + rng.IntN(2))
	}
	t.snatch = pick(0.1, 1)
	if rng.Float64() < 0.3 {
		t.jumps = []time.Duration{time.Hour, 50 * 365 * 24 * time.Hour}[rng.IntN(2)]
	}
	t.serverClock = []int64{1_800_000_000, 1_800_000_000, 0, cluster.MaxClock - 3600}[rng.IntN(4)]
	drawPolicies(rng, &t)
	if rng.Float64() < 0.05 { // long enough for damping to count, which it does not for an elector that has just begun
		t.busy, t.gap = 3*time.Minute, 3*t.gap
		for i := range t.rules {
			t.rules[i].Failback, t.rules[i].MaxPreemptions, t.rules[i].PreemptionWindow = "", 1, cluster.Duration(time.Hour)
		}
	}
	drawTrust(rng, &t)
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
	// Some worlds are about little but an operator's doing, with whoever works hit at the worst moment.
	focused := rng.Float64() < 0.25
	if focused {
		requested = requested && rng.Float64() < 0.2
		t.ambush, t.slowKill = 1, 1
		if rng.Float64() < 0.5 { // and a group that reacts at once
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
		if focused && !k.meddling && rng.Float64() < 0.8 {
			x = 0
		}
		if k.byOperator && !requested {
			x = 0
		}
		if k.meddling && rng.Float64() < 0.4 {
			x = 0
		}
		if k.intruder && slices.Contains(t.trusts, true) {
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

// drawTrust has all hosts alike mostly.
func drawTrust(rng *rand.Rand, t *traits) {
	kind := rng.Float64()
	for range t.hosts {
		t.trusts = append(t.trusts, kind < 0.3 || kind < 0.5 && rng.Float64() < 0.5)
	}
}

func (t traits) String() string {
	text, err := json.Marshal(map[string]any{
		"hosts": t.hosts, "timeouts": fmt.Sprint(t.timeouts), "stop": t.stop.String(), "takeover": t.takeover.String(), "latency": fmt.Sprint(t.latency),
		"slow": t.slow, "late_watch": t.lateWatch, "lost_watch": t.lostWatch, "ghosts": t.ghosts, "slow_kill": t.slowKill, "ambush": t.ambush, "snatch": t.snatch, "granting": t.granting, "trusts": t.trusts, "stuck": t.stuck, "clings": t.clings,
		"rules": t.rules[0], "noise": t.noise, "keeps": t.keeps, "ill": t.ill, "mute": t.mute,
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
