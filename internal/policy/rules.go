package policy

import (
	"fmt"

	"zkelectd/internal/cluster"
)

// The filters that hold under every policy.

type recordFilter struct{}

func (recordFilter) Name() string { return "record" }

func (recordFilter) Allow(m cluster.Member, _ Input) (bool, string) {
	switch {
	case m.Superseded:
		return false, "an older registration of a node that has registered again"
	case !m.Node.Exists:
		return false, "its znode below nodes is missing"
	case m.Node.Err != nil:
		return false, m.Node.Err.Error()
	}
	return true, ""
}

type eligibleFilter struct{}

func (eligibleFilter) Name() string { return "eligible" }

func (eligibleFilter) Allow(m cluster.Member, _ Input) (bool, string) {
	return m.Node.Record.Ineligible == "", m.Node.Record.Ineligible
}

type barredFilter struct{}

func (barredFilter) Name() string { return "barred" }

func (barredFilter) Allow(m cluster.Member, in Input) (bool, string) {
	why, barred := in.Barred[m.Name]
	return !barred, why
}

type excludedFilter struct{}

func (excludedFilter) Name() string { return "excluded" }

func (excludedFilter) Allow(m cluster.Member, in Input) (bool, string) {
	why, excluded := in.Excluded[m.ID]
	return !excluded, why
}

// The rankers.

type siteRanker map[string]int

func (siteRanker) Name() string { return "site" }

func (s siteRanker) Score(m cluster.Member, _ Input) (float64, string) {
	site := m.Node.Record.Site
	return float64(s[site]), fmt.Sprintf("site %s has %d", site, s[site])
}

type priorityRanker struct{}

func (priorityRanker) Name() string { return "priority" }

func (priorityRanker) Score(m cluster.Member, _ Input) (float64, string) {
	return float64(m.Node.Record.Priority), fmt.Sprintf("priority %d", m.Node.Record.Priority)
}

type incumbentRanker struct{}

func (incumbentRanker) Name() string { return "incumbent" }

func (incumbentRanker) Score(m cluster.Member, in Input) (float64, string) {
	if m.Name == in.Incumbent {
		return 1, "incumbent"
	}
	return 0, ""
}

type oldestRanker struct{}

func (oldestRanker) Name() string { return "oldest" }

// Score counts back from the first member, as differences of sequences stay right across the wrap of the counter.
func (oldestRanker) Score(m cluster.Member, in Input) (float64, string) {
	return -float64(m.Seq - in.Members[0].Seq), fmt.Sprintf("sequence %d", m.Seq)
}
