package sim

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// vitals are what a daemon finds out about its host, besides its priority.
type vitals struct {
	latency, score float64
	measured       bool
	unhealthy      bool
	ineligible     bool
}

func (v *vitals) draw(w *world) {
	v.latency, v.score, v.measured = 5+15*w.rng.Float64(), 100*w.rng.Float64(), w.chance(0.9)
	if w.traits.noise && w.chance(0.7) { // all but noise
		v.latency, v.score = 10, 50
	}
}

// record is what the daemon publishes.
func (h *host) record() cluster.Node {
	n := cluster.Node{
		ID: h.id, Site: h.site, Priority: h.prio, Labels: map[string]string{"tier": string("aab"[h.number%3])}, Host: h.id,
		SessionTimeout: cluster.Duration(h.timeout),
	}
	if h.vitals.measured {
		latency, score := h.noisy(h.vitals.latency), h.noisy(h.vitals.score)
		n.Latency, n.Score = &latency, &score
	}
	if h.vitals.unhealthy {
		n.Unhealthy = "its probe fails"
	}
	if h.vitals.ineligible {
		n.Ineligible = "its configuration says so"
	}
	return n
}

// noisy is a measurement: 4 % off at most, less than half of any hysteresis that there is.
func (h *host) noisy(x float64) float64 {
	if !h.w.traits.noise {
		return x
	}
	return x * (1 + 0.08*(h.w.rng.Float64()-0.5))
}

func (h *host) publish() {
	rec := h.record()
	h.w.meddle(cluster.Op{Kind: cluster.OpSet, Path: h.w.known.nodes + "/" + h.id, Data: cluster.Encode(&rec)})
}

// reprioritise is a reload of the daemon with another priority.
func (h *host) reprioritise() {
	h.prio = h.w.rng.IntN(3)
	h.publish()
}

// noise has all nodes measure anew, again and again.
func (w *world) noise() {
	if !w.traits.noise {
		return
	}
	for _, h := range w.hosts {
		h.publish()
	}
	w.after(w.between(200*time.Millisecond, 2*time.Second), w.noise)
}

var vitalsFaults = []faultKind{
	{name: "measurements changed", do: func(w *world, h *host) {
		h.vitals.draw(w)
		h.publish()
	}},
	{name: "health changed", do: func(_ *world, h *host) {
		h.vitals.unhealthy = !h.vitals.unhealthy
		h.publish()
	}},
	{name: "eligibility changed", do: func(_ *world, h *host) {
		h.vitals.ineligible = !h.vitals.ineligible
		h.publish()
	}},
	{name: "policy changed", do: func(w *world, _ *host) { w.publishPolicy(one(w.rng, w.traits.rules)) }},
	{name: "policy of a newer version", byOperator: true, do: func(w *world, _ *host) {
		if w.chance(0.3) {
			w.meddle(cluster.Op{Kind: cluster.OpSet, Path: w.known.policy, Data: fmt.Appendf(nil, `{"v":9,"revision":%d}`, w.revision)})
		}
	}},
}
