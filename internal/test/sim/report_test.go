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

func (v *selfReport) draw(r *resource) {
	w := r.w
	v.latency, v.score, v.measured = 5+15*w.rng.Float64(), 100*w.rng.Float64(), w.chance(0.9)
	if r.traits.noise && w.chance(0.7) { // equal except for the noise
		v.latency, v.score = 10, 50
	}
}

// record returns what the daemon publishes.
func (m *resident) record() cluster.Node {
	n := cluster.Node{
		ID: m.id, Site: m.site, Priority: m.prio, Labels: map[string]string{"tier": string("aab"[m.number%3])}, Host: m.id,
		SessionTimeout: cluster.Duration(m.timeout),
	}
	if m.instance != nil {
		n.Instance, n.LastTerm = m.instance.id(), m.w.broken.remembers(m.instance.lastTerm)
		n.Answer = m.instance.answer
		if a := m.instance.announced; a != nil {
			n.Leaving = a.reason
		}
	}
	n.Failsafe = m.failsafeNode()
	if m.standby != nil {
		n.Standby = &cluster.Standby{State: m.standby.state}
	}
	if m.report.measured {
		latency, score := m.noisy(m.report.latency), m.noisy(m.report.score)
		n.Latency, n.Score = &latency, &score
	}
	if m.report.unhealthy {
		n.Unhealthy = "its probe fails"
	}
	if m.report.ineligible {
		n.Ineligible = "its configuration says so"
	}
	return n
}

// noisy returns a measurement that is at most 4% off, less than half of any hysteresis.
func (m *resident) noisy(x float64) float64 {
	if !m.r.traits.noise {
		return x
	}
	return x * (1 + 0.08*(m.w.rng.Float64()-0.5))
}

func (m *resident) publish() {
	rec := m.record()
	g := m.r.groups[0]
	g.tamper(cluster.Op{Kind: cluster.OpSet, Path: g.known.nodes + "/" + m.id, Data: cluster.Encode(&rec)})
}

// changePriority reloads the daemon with another priority.
func (m *resident) changePriority() {
	m.prio = m.w.rng.IntN(3)
	m.publish()
}

// noise makes all nodes measure again and again.
func (r *resource) noise() {
	w := r.w
	if !r.traits.noise {
		return
	}
	for _, m := range r.residents {
		m.publish()
	}
	w.after(w.between(200*time.Millisecond, 2*time.Second), r.noise)
}

var reportFaults = []faultKind{
	{name: "measurements changed", do: func(w *world, m *member) {
		m.report.draw(m.r)
		m.publish()
	}},
	{name: "health changed", do: func(_ *world, m *member) {
		m.report.unhealthy = !m.report.unhealthy
		m.publish()
	}},
	{name: "eligibility changed", do: func(_ *world, m *member) {
		m.report.ineligible = !m.report.ineligible
		m.publish()
	}},
	{name: "policy changed", do: func(w *world, m *member) { m.g.publishPolicy(one(w.rng, m.g.traits.rules)) }},
	{name: "policy of a newer version", byOperator: true, do: func(w *world, m *member) {
		if w.chance(0.3) {
			m.g.tamper(cluster.Op{Kind: cluster.OpSet, Path: m.g.known.policy, Data: fmt.Appendf(nil, `{"v":9,"revision":%d}`, m.g.revision)})
		}
	}},
}
