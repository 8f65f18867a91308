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

// scorer gives a member a score, and describes it in words, which may be empty.
type scorer func(m *cluster.Member) (score float64, words string)

// ranker gives each member of an input a score, the highest first.
type ranker struct {
	name string
	bind func(in Input) scorer
}

// memberRanker returns a ranker that does not compare members.
func memberRanker(name string, score func(m *cluster.Member, in *Input) (float64, string)) ranker {
	return ranker{name, func(in Input) scorer {
		return func(m *cluster.Member) (float64, string) { return score(m, &in) }
	}}
}

// moveRanker ranks the target of an operator's move first, before the policy's rankers.
var moveRanker = memberRanker("move", func(m *cluster.Member, in *Input) (float64, string) {
	if in.Move != nil && in.Move.Matches(m.ID, m.Node.Record.Site) {
		return 1, fmt.Sprintf("moved to %s %s", in.Move.Target(), in.Move.Request)
	}
	return 0, ""
})

func siteRanker(sites map[string]int) ranker {
	return memberRanker("site", func(m *cluster.Member, _ *Input) (float64, string) {
		site := m.Node.Record.Site
		return float64(sites[site]), "site " + site + " has " + strconv.Itoa(sites[site])
	})
}

var priorityRanker = memberRanker("priority", func(m *cluster.Member, _ *Input) (float64, string) {
	return float64(m.Node.Record.Priority), "priority " + strconv.Itoa(m.Node.Record.Priority)
})

var incumbentRanker = memberRanker("incumbent", func(m *cluster.Member, in *Input) (float64, string) {
	if m.Name == in.Incumbent {
		return 1, "incumbent"
	}
	return 0, ""
})

// oldestRanker ranks the members as [cluster.OldestFirst] does.
var oldestRanker = memberRanker("oldest", func(m *cluster.Member, _ *Input) (float64, string) {
	return 0 - float64(uint32(m.Seq)), "sequence " + strconv.Itoa(int(m.Seq))
})

// otherSiteRanker ranks the sites at which a leader or candidate has failed behind the others.
var otherSiteRanker = memberRanker("other-site", func(m *cluster.Member, in *Input) (float64, string) {
	site := m.Node.Record.Site
	if slices.Contains(in.Circumstances.Failed, site) {
		return 0, "site " + site + " has just failed"
	}
	if len(in.Circumstances.Failed) > 0 {
		return 1, "site " + site + " has not failed"
	}
	return 1, ""
})

// positionRanker returns a ranker by the position in a sorted list of the members' ids.
func positionRanker(name, words string, sort func(ids []string, in Input)) ranker {
	return ranker{name, func(in Input) scorer {
		ids := make([]string, 0, len(in.Members))
		for _, m := range in.Members {
			ids = append(ids, m.ID)
		}
		sort(ids, in)
		position := positions(ids)
		return func(m *cluster.Member) (float64, string) {
			return 0 - float64(position[m.ID]), strconv.Itoa(position[m.ID]+1) + ". " + words
		}
	}}
}

// positions returns the position of each name in a list. The first one counts.
func positions(names []string) map[string]int {
	position := make(map[string]int, len(names))
	for i, name := range slices.Backward(names) {
		position[name] = i
	}
	return position
}

var (
	nodeIDRanker = positionRanker("node-id", "by id", func(ids []string, _ Input) {
		slices.SortFunc(ids, cluster.CompareNodes)
	})
	highestNodeIDRanker = positionRanker("highest-node-id", "by id, the highest first", func(ids []string, _ Input) {
		slices.SortFunc(ids, func(a, b string) int { return cluster.CompareNodes(b, a) })
	})
)

// roundRobinRanker starts with the id after the last leader's.
var roundRobinRanker = positionRanker("round-robin", "in round-robin order", func(ids []string, in Input) {
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
})

// measurementRanker ranks by a number that each node publishes. The incumbent's is raised by the hysteresis, in
// percent, so that noise never moves a leader. Where there is none, words say why.
func measurementRanker(name string, hysteresis int, value func(m *cluster.Member, in *Input) (score float64,
	words string, ok bool)) ranker {
	return memberRanker(name, func(m *cluster.Member, in *Input) (float64, string) {
		score, words, ok := value(m, in)
		if !ok || math.IsNaN(score) {
			return unknownScore, words
		}
		if m.Name == in.Incumbent && hysteresis > 0 {
			score += math.Abs(score) * float64(hysteresis) / 100
			words += fmt.Sprintf(" (incumbent: +%d%%)", hysteresis)
		}
		return score, words
	})
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
var execRanker = ranker{execType, func(in Input) scorer {
	position := answered(in.Answer)
	return func(m *cluster.Member) (float64, string) {
		i, listed := position[m.ID]
		if !listed {
			return unknownScore, ""
		}
		return 0 - float64(i), strconv.Itoa(i+1) + ". by the program"
	}
}}

// answered returns the position of each node that an answer lists.
func answered(a *Answer) map[string]int {
	if a == nil {
		return nil
	}
	return positions(a.Ranking)
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
