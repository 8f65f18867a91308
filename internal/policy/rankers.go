package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// worst is the score of a member that a ranker knows nothing of.
var worst = math.Inf(-1)

// each is a ranker that looks at one member at a time.
type each struct {
	name  string
	score func(m cluster.Member, in Input) (float64, string)
}

func (e each) Name() string { return e.name }

func (e each) For(in Input) func(cluster.Member) (float64, string) {
	return func(m cluster.Member) (float64, string) { return e.score(m, in) }
}

// moveRanker puts the target of an operator's move first, before all policy.
type moveRanker struct{}

func (moveRanker) Name() string { return "move" }

func (moveRanker) For(in Input) func(cluster.Member) (float64, string) {
	return func(m cluster.Member) (float64, string) {
		if in.Move != nil && in.Move.Meets(m.ID, m.Node.Record.Site) {
			return 1, fmt.Sprintf("moved to %s %s", in.Move.Target(), in.Move.Order)
		}
		return 0, ""
	}
}

func siteRanker(sites map[string]int) Ranker {
	return each{"site", func(m cluster.Member, _ Input) (float64, string) {
		site := m.Node.Record.Site
		return float64(sites[site]), fmt.Sprintf("site %s has %d", site, sites[site])
	}}
}

var priorityRanker = each{"priority", func(m cluster.Member, _ Input) (float64, string) {
	return float64(m.Node.Record.Priority), fmt.Sprintf("priority %d", m.Node.Record.Priority)
}}

var incumbentRanker = each{"incumbent", func(m cluster.Member, in Input) (float64, string) {
	if m.Name == in.Incumbent {
		return 1, "incumbent"
	}
	return 0, ""
}}

// oldestRanker counts back from the first member, as differences of sequences stay right across the wrap of the counter.
var oldestRanker = each{"oldest", func(m cluster.Member, in Input) (float64, string) {
	return 0 - float64(m.Seq-in.Members[0].Seq), fmt.Sprintf("sequence %d", m.Seq)
}}

// otherSiteRanker puts the sites on which somebody has failed behind the others.
var otherSiteRanker = each{"other-site", func(m cluster.Member, in Input) (float64, string) {
	site := m.Node.Record.Site
	if slices.Contains(in.Circumstances.Failed, site) {
		return 0, fmt.Sprintf("site %s has just failed", site)
	}
	if len(in.Circumstances.Failed) > 0 {
		return 1, fmt.Sprintf("site %s has not failed", site)
	}
	return 1, ""
}}

// order ranks members by a position in a list of them: before the later ones.
type order struct {
	name string
	sort func(ids []string, in Input)
	word string
}

func (o order) Name() string { return o.name }

func (o order) For(in Input) func(cluster.Member) (float64, string) {
	ids := make([]string, 0, len(in.Members))
	for _, m := range in.Members {
		ids = append(ids, m.ID)
	}
	o.sort(ids, in)
	place := make(map[string]int, len(ids))
	for i, id := range ids {
		if _, twice := place[id]; !twice {
			place[id] = i
		}
	}
	return func(m cluster.Member) (float64, string) {
		return 0 - float64(place[m.ID]), fmt.Sprintf("%d. %s", place[m.ID]+1, o.word)
	}
}

var nodeIDRanker = order{"node-id", func(ids []string, _ Input) { slices.Sort(ids) }, "by id"}

// roundRobinRanker begins after the last leader, in the order of the ids.
var roundRobinRanker = order{"round-robin", func(ids []string, in Input) {
	last := in.Circumstances.Node
	slices.SortFunc(ids, func(a, b string) int {
		if (a > last) != (b > last) {
			if a > last {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}, "in turn"}

// measured ranks by a number that each node publishes. The incumbent's counts for more by the hysteresis, so that noise
// never moves a leader.
func measured(name string, hysteresis int, value func(n cluster.Node) (score float64, words string, ok bool)) Ranker {
	return each{name, func(m cluster.Member, in Input) (float64, string) {
		score, words, ok := value(m.Node.Record)
		if !ok || math.IsNaN(score) {
			return worst, "no " + name + " yet"
		}
		if m.Name == in.Incumbent && hysteresis > 0 {
			score += math.Abs(score) * float64(hysteresis) / 100
			words += fmt.Sprintf(" (incumbent: +%d %%)", hysteresis)
		}
		return score, words
	}}
}

func latencyRanker(rules cluster.Rules) Ranker {
	return measured("latency", rules.Hysteresis, func(n cluster.Node) (float64, string, bool) {
		if n.Latency == nil {
			return 0, "", false
		}
		return -*n.Latency, fmt.Sprintf("latency %.3g ms", *n.Latency), true
	})
}

func scoreRanker(rules cluster.Rules) Ranker {
	return measured("score", rules.Hysteresis, func(n cluster.Node) (float64, string, bool) {
		if n.Score == nil {
			return 0, "", false
		}
		return *n.Score, fmt.Sprintf("score %.4g", *n.Score), true
	})
}

// execRanker follows the program's answer.
var execRanker = each{"exec", func(m cluster.Member, in Input) (float64, string) {
	if in.Answer == nil {
		return worst, ""
	}
	i := slices.Index(in.Answer.Order, m.ID)
	if i < 0 {
		return worst, ""
	}
	return 0 - float64(i), fmt.Sprintf("%d. by the program", i+1)
}}

func execFilter() filter {
	f := plain(execPreset, func(m cluster.Member, in Input) string {
		if in.Answer == nil || slices.Contains(in.Answer.Order, m.ID) {
			return ""
		}
		return "policy.exec.command does not name it"
	})
	f.soft = true
	return f
}
