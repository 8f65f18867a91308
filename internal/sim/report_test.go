package sim

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// selfReport is what a daemon publishes about its host, besides its priority.
type selfReport struct {
	latency, score float64
	measured       bool
	unhealthy      bool
	ineligible     bool
}

func (v *selfReport) draw(w *world) {
	v.latency, v.score, v.measured = 5+15*w.rng.Float64(), 100*w.rng.Float64(), w.chance(0.9)
	if w.traits.noise && w.chance(0.7) { // equal except for the noise
		v.latency, v.score = 10, 50
	}
}

// record returns what the daemon publishes.
func (h *host) record() cluster.Node {
	n := cluster.Node{
		ID: h.id, Site: h.site, Priority: h.prio, Labels: map[string]string{"tier": string("aab"[h.number%3])}, Host: h.id,
		SessionTimeout: cluster.Duration(h.timeout),
	}
	if h.report.measured {
		latency, score := h.noisy(h.report.latency), h.noisy(h.report.score)
		n.Latency, n.Score = &latency, &score
	}
	if h.report.unhealthy {
		n.Unhealthy = "its probe fails"
	}
	if h.report.ineligible {
		n.Ineligible = "its configuration says so"
	}
	return n
}

// noisy returns a measurement that is at most 4% off, less than half of any hysteresis.
func (h *host) noisy(x float64) float64 {
	if !h.w.traits.noise {
		return x
	}
	return x * (1 + 0.08*(h.w.rng.Float64()-0.5))
}

func (h *host) publish() {
	rec := h.record()
	h.w.tamper(cluster.Op{Kind: cluster.OpSet, Path: h.w.known.nodes + "/" + h.id, Data: cluster.Encode(&rec)})
}

// changePriority reloads the daemon with another priority.
func (h *host) changePriority() {
	h.prio = h.w.rng.IntN(3)
	h.publish()
}

// noise makes all nodes measure again and again.
func (w *world) noise() {
	if !w.traits.noise {
		return
	}
	for _, h := range w.hosts {
		h.publish()
	}
	w.after(w.between(200*time.Millisecond, 2*time.Second), w.noise)
}

var reportFaults = []faultKind{
	{name: "measurements changed", do: func(w *world, h *host) {
		h.report.draw(w)
		h.publish()
	}},
	{name: "health changed", do: func(_ *world, h *host) {
		h.report.unhealthy = !h.report.unhealthy
		h.publish()
	}},
	{name: "eligibility changed", do: func(_ *world, h *host) {
		h.report.ineligible = !h.report.ineligible
		h.publish()
	}},
	{name: "policy changed", do: func(w *world, _ *host) { w.publishPolicy(one(w.rng, w.traits.rules)) }},
	{name: "policy of a newer version", byOperator: true, do: func(w *world, _ *host) {
		if w.chance(0.3) {
			w.tamper(cluster.Op{Kind: cluster.OpSet, Path: w.known.policy, Data: fmt.Appendf(nil, `{"v":9,"revision":%d}`, w.revision)})
		}
	}},
}
