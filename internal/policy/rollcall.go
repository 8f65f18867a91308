package policy

import (
	"math"
	"strconv"
	"strings"

	"zkelectd/internal/cluster"
)

// exprBest is the best answer to the roll call as expressions about a member see it.
type exprBest struct {
	Score float64 `expr:"score"`
}

// bestOf returns the best answer to the roll call for an expression about m. Without answers it is m's own score: what
// members publish is smoothed and old, so a lag limit such as best.score - member.score <= 100 refuses nobody by that.
func (g *exprGroup) bestOf(m exprMember) exprBest {
	if !g.answered {
		return exprBest{m.Score}
	}
	return exprBest{g.best}
}

// setAnswers sets the best answer to the roll call, if there is one. Then members without an answer rank below all
// others, also in expressions, and however low the answers are.
func (g *exprGroup) setAnswers() {
	for _, m := range g.Members {
		if m.KnownScore && (!g.answered || m.Score > g.best) {
			g.answered, g.best = true, m.Score
		}
	}
	for i := range g.Members {
		g.Members[i] = g.ranked(g.Members[i])
	}
}

// ranked returns m with the score that members without an answer have.
func (g *exprGroup) ranked(m exprMember) exprMember {
	if g.answered && !m.KnownScore {
		m.Score = unknownScore
	}
	return m
}

// MayAnswer reports whether answers to a roll call may make the member eligible: it is, or only expressions refuse it,
// which may depend on them.
func (e Entry) MayAnswer() bool {
	for _, r := range e.Refusals {
		if !strings.HasPrefix(r.Filter, expressionFilter) {
			return false
		}
	}
	return true
}

// numberText returns a number for people, with all its digits if exact is set, as in a ranking by answers to a roll
// call: the positions of two hosts may differ in the last ones.
func numberText(v float64, exact bool) string {
	switch {
	case !exact:
		return strconv.FormatFloat(v, 'g', 6, 64)
	case v == math.Trunc(v) && math.Abs(v) <= 1<<53:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// noScore says why a member has no score.
func noScore(m *cluster.Member, in *Input) string {
	if in.RollCall == "" {
		return "no score yet"
	}
	if a := m.AnswerTo(in.RollCall); a != nil {
		return "no score: " + a.Why
	}
	return "no answer to the roll call"
}
