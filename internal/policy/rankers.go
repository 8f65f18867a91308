package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
)

// unknownScore is the score of a member that a ranker knows nothing about.
var unknownScore = math.Inf(-1)

// memberRanker is a ranker that does not compare members.
type memberRanker struct {
	label string
	score func(m *cluster.Member, in *Input) (float64, string)
}

func (r memberRanker) name() string { return r.label }

func (r memberRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	return func(m *cluster.Member) (float64, string) { return r.score(m, &in) }
}

// moveRanker ranks the target of an operator's move first, before the policy's rankers.
type moveRanker struct{}

func (moveRanker) name() string { return "move" }

func (moveRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	return func(m *cluster.Member) (float64, string) {
		if in.Move != nil && in.Move.Matches(m.ID, m.Node.Record.Site) {
			return 1, fmt.Sprintf("moved to %s %s", in.Move.Target(), in.Move.Request)
		}
		return 0, ""
	}
}

func siteRanker(sites map[string]int) ranker {
	return memberRanker{"site", func(m *cluster.Member, _ *Input) (float64, string) {
		site := m.Node.Record.Site
		return float64(sites[site]), "site " + site + " has " + strconv.Itoa(sites[site])
	}}
}

var priorityRanker = memberRanker{"priority", func(m *cluster.Member, _ *Input) (float64, string) {
	return float64(m.Node.Record.Priority), "priority " + strconv.Itoa(m.Node.Record.Priority)
}}

var incumbentRanker = memberRanker{"incumbent", func(m *cluster.Member, in *Input) (float64, string) {
	if m.Name == in.Incumbent {
		return 1, "incumbent"
	}
	return 0, ""
}}

// oldestRanker ranks the members as [cluster.OldestFirst] does.
var oldestRanker = memberRanker{"oldest", func(m *cluster.Member, _ *Input) (float64, string) {
	return 0 - float64(uint32(m.Seq)), "sequence " + strconv.Itoa(int(m.Seq))
}}

// otherSiteRanker ranks the sites at which a leader or candidate has failed behind the others.
var otherSiteRanker = memberRanker{"other-site", func(m *cluster.Member, in *Input) (float64, string) {
	site := m.Node.Record.Site
	if slices.Contains(in.Circumstances.Failed, site) {
		return 0, "site " + site + " has just failed"
	}
	if len(in.Circumstances.Failed) > 0 {
		return 1, "site " + site + " has not failed"
	}
	return 1, ""
}}

// positionRanker ranks members by their position in a sorted list of their ids.
type positionRanker struct {
	label string
	sort  func(ids []string, in Input)
	words string
}

func (r positionRanker) name() string { return r.label }

func (r positionRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	ids := make([]string, 0, len(in.Members))
	for _, m := range in.Members {
		ids = append(ids, m.ID)
	}
	r.sort(ids, in)
	position := make(map[string]int, len(ids))
	for i, id := range ids {
		if _, repeated := position[id]; !repeated {
			position[id] = i
		}
	}
	return func(m *cluster.Member) (float64, string) {
		return 0 - float64(position[m.ID]), strconv.Itoa(position[m.ID]+1) + ". " + r.words
	}
}

var (
	nodeIDRanker        = positionRanker{"node-id", func(ids []string, _ Input) { slices.SortFunc(ids, cluster.CompareNodes) }, "by id"}
	highestNodeIDRanker = positionRanker{"highest-node-id", func(ids []string, _ Input) {
		slices.SortFunc(ids, func(a, b string) int { return cluster.CompareNodes(b, a) })
	}, "by id, the highest first"}
)

// roundRobinRanker starts with the id after the last leader's.
var roundRobinRanker = positionRanker{"round-robin", func(ids []string, in Input) {
	last := in.Circumstances.Node
	slices.SortFunc(ids, func(a, b string) int {
		later := cluster.CompareNodes(a, last) > 0
		if later != (cluster.CompareNodes(b, last) > 0) {
			if later {
				return -1
			}
			return 1
		}
		return cluster.CompareNodes(a, b)
	})
}, "in round-robin order"}

// measurementRanker ranks by a number that each node publishes. The incumbent's is raised by the hysteresis, in percent, so
// that noise never moves a leader.
// Where there is none, words say why.
func measurementRanker(name string, hysteresis int, value func(m *cluster.Member, in *Input) (score float64, words string, ok bool)) ranker {
	return memberRanker{name, func(m *cluster.Member, in *Input) (float64, string) {
		score, words, ok := value(m, in)
		if !ok || math.IsNaN(score) {
			return unknownScore, words
		}
		if m.Name == in.Incumbent && hysteresis > 0 {
			score += math.Abs(score) * float64(hysteresis) / 100
			words += fmt.Sprintf(" (incumbent: +%d%%)", hysteresis)
		}
		return score, words
	}}
}

func latencyRanker(rules cluster.Rules) ranker {
	return measurementRanker("latency", rules.Hysteresis, func(m *cluster.Member, _ *Input) (float64, string, bool) {
		n := &m.Node.Record
		if n.Latency == nil {
			return 0, "no latency yet", false
		}
		return -*n.Latency, "latency " + strconv.FormatFloat(*n.Latency, 'g', 3, 64) + " ms", true
	})
}

func scoreRanker(rules cluster.Rules) ranker {
	return measurementRanker("score", rules.Hysteresis, func(m *cluster.Member, in *Input) (float64, string, bool) {
		n := &m.Node.Record
		if n.Score == nil {
			return 0, noScore(m, in), false
		}
		if in.RollCall != "" {
			return *n.Score, "score " + numberText(*n.Score, true), true
		}
		return *n.Score, "score " + strconv.FormatFloat(*n.Score, 'g', 4, 64), true
	})
}

// execRanker follows the ranking program's answer.
type execRanker struct{}

func (execRanker) name() string { return execType }

func (execRanker) bind(in Input) func(*cluster.Member) (float64, string) {
	position := answered(in.Answer)
	return func(m *cluster.Member) (float64, string) {
		i, listed := position[m.ID]
		if !listed {
			return unknownScore, ""
		}
		return 0 - float64(i), strconv.Itoa(i+1) + ". by the program"
	}
}

// answered returns the position of each node that an answer lists. The first one counts.
func answered(a *Answer) map[string]int {
	if a == nil {
		return nil
	}
	position := make(map[string]int, len(a.Ranking))
	for i, id := range slices.Backward(a.Ranking) {
		position[id] = i
	}
	return position
}

func execFilter() filter {
	return filter{name: execType, soft: true, bind: func(in Input) func(*cluster.Member) string {
		position := answered(in.Answer)
		return func(m *cluster.Member) string {
			if _, listed := position[m.ID]; listed || in.Answer == nil {
				return ""
			}
			return "policy.exec did not list it"
		}
	}}
}
