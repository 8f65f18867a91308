package status

import (
	"fmt"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// AbsentMember is a node that has been a member of the group, and is not registered now.
type AbsentMember struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// State is lost, stopped (its daemon was stopped) or removed (the group was removed from its configuration).
	State string `json:"state"`
	// Left is when it left, by the clock of the elector, or of the node itself if it left on purpose; nil if nobody has
	// seen it leave.
	Left *time.Time `json:"left,omitempty"`
	// FirstSeen is when an elector saw it for the first time, by that elector's clock.
	FirstSeen *time.Time `json:"first_seen,omitempty"`
}

// absent returns the absent members, and how many members are expected.
func absent(s cluster.Snapshot) (list []AbsentMember, expected int) {
	nodes, expected := s.Absent()
	for _, n := range nodes {
		list = append(list, AbsentMember{Node: n.ID, Site: n.Site, State: string(n.Left.How),
			Left: timeOrNil(n.Left.Time), FirstSeen: timeOrNil(n.FirstSeen)})
	}
	return list, expected
}

// Lost returns the ids of the members that are lost.
func Lost(all []AbsentMember) (ids []string) {
	for _, m := range all {
		if m.State == string(cluster.LeftLost) {
			ids = append(ids, m.Node)
		}
	}
	return ids
}

// StateAt returns the state with the time since then by the clock of this host, such as LOST 5m.
func (m AbsentMember) StateAt(now time.Time) string {
	state := strings.ToUpper(m.State)
	if m.Left == nil {
		return state
	}
	return state + " " + age(now.Sub(*m.Left))
}

// age returns a duration in its two largest units at most, such as 2d3h, 5m or 12s.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// maxLostNamed is how many lost members the summary names.
const maxLostNamed = 5

// membersLine says how many of the expected members are there, and which ones are lost; empty if all are.
func membersLine(group string, present, expected int, all []AbsentMember) string {
	if present >= expected {
		return ""
	}
	line := fmt.Sprintf("%d of %d expected", present, expected)
	lost := Lost(all)
	if len(lost) == 0 {
		return line
	}
	return fmt.Sprintf("%s; lost: %s (%s if it does not come back)", line, suggest.List(lost, maxLostNamed),
		cluster.InGroup("'zkelectd forget %s'", group, lost[0]))
}
