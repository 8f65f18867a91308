package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// ProgramTimeout is how long an election waits for the ranking program.
const ProgramTimeout = 2 * time.Second

// question is the input of an exec policy's ranking program.
type question struct {
	V        int              `json:"v"`
	Cause    cluster.Cause    `json:"cause"`
	Previous questionLeader   `json:"previous"`
	Failed   []string         `json:"failed_sites"`
	Members  []questionMember `json:"members"`
}

type questionLeader struct {
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
}

type questionMember struct {
	ID        string            `json:"id"`
	Site      string            `json:"site"`
	Priority  int               `json:"priority"`
	Labels    map[string]string `json:"labels"`
	Incumbent bool              `json:"incumbent"`
	Latency   *float64          `json:"latency_ms,omitempty"`
	Score     *float64          `json:"score,omitempty"`
}

// QuestionKey returns a key that differs for questions that need different answers. Measurements change all the time
// and do not count, but a roll call does.
func QuestionKey(in Input) string {
	members := slices.Clone(in.Members)
	for i := range members {
		members[i].Node.Record.Latency, members[i].Node.Record.Score = nil, nil
	}
	in.Members = members
	return in.RollCall + string(QuestionJSON(in))
}

// QuestionJSON returns an input as the ranking program reads it; equal inputs give equal texts. Superseded
// registrations are left out.
func QuestionJSON(in Input) []byte {
	c := in.Circumstances
	q := question{V: 1, Cause: c.Cause, Previous: questionLeader{c.Node, c.Site},
		Failed: append([]string{}, c.Failed...), Members: []questionMember{}}
	for _, m := range in.Members {
		n := m.Node.Record
		if m.Superseded || !m.Node.Readable() || in.Silent[m.Name] {
			continue
		}
		labels := n.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		q.Members = append(q.Members, questionMember{m.ID, n.Site, n.Priority, labels, m.Name == in.Incumbent,
			n.Latency, n.Score})
	}
	slices.SortFunc(q.Members, func(a, b questionMember) int { return cmp.Compare(a.ID, b.ID) })
	data, err := json.Marshal(q)
	if err != nil {
		// Only a latency or score that is not a number gets here, and records cannot hold one.
		panic(fmt.Sprintf("policy: %v", err))
	}
	return append(data, '\n')
}

// ParseAnswer parses the output of the ranking program: a JSON list of node ids, best first. Members that are not
// listed are not eligible.
func ParseAnswer(data []byte, in Input) Answer {
	var ids []string
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&ids); err != nil {
		return Answer{Err: fmt.Sprintf("its answer is not a JSON list of node ids: %v", err)}
	}
	if ids == nil {
		return Answer{Err: "its answer is not a JSON list of node ids: it is null"}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Answer{Err: "its answer has more than one JSON list"}
	}
	unnamed := make(map[string]bool, len(in.Members))
	for _, m := range in.Members {
		unnamed[m.ID] = true
	}
	for _, id := range ids {
		switch left, member := unnamed[id]; {
		case !member:
			return Answer{Err: fmt.Sprintf("its answer names %q, which is not a member", id)}
		case !left:
			return Answer{Err: fmt.Sprintf("its answer names %q twice", id)}
		}
		unnamed[id] = false
	}
	return Answer{Ranking: ids}
}
