package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// line is a line that a leader-only child has printed.
type line struct {
	at          time.Time
	group, node string
	term        int64
}

var workLine = regexp.MustCompile(`^(\S+) (?:begins|works|ends) group=(\S+) node=(\S+) site=\S+ term=(\d+)$`)

// parse returns the lines of the child in the log of a container, and ignores those of the daemon.
func parse(log string) ([]line, error) {
	var lines []line
	for text := range strings.Lines(log) {
		m := workLine.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return nil, err
		}
		term, err := strconv.ParseInt(m[4], 10, 64)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line{at, m[2], m[3], term})
	}
	return lines, nil
}

// exclusive returns an error if two terms of a group worked at the same time: every line must have the highest term so
// far, and each term one node. The containers share a clock. It sorts the lines by time.
func exclusive(lines []line) error {
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	last := make(map[string]line) // by group
	for _, now := range lines {
		before := last[now.group]
		if now.term < before.term || (now.term == before.term && now.node != before.node) {
			return fmt.Errorf("two worked at the same time in the group %s: %s in term %d at %s, after %s "+
				"in term %d at %s", now.group,
				now.node, now.term, now.at.Format(time.RFC3339Nano), before.node, before.term, before.at.Format(time.RFC3339Nano))
		}
		last[now.group] = now
	}
	return nil
}

// span is the work of a term of a group.
type span struct {
	node     string
	term     int64
	from, to time.Time
}

// terms returns the work of each term of one group, by time.
func terms(lines []line) []span {
	var all []span
	for _, l := range lines {
		if len(all) == 0 || all[len(all)-1].term != l.term {
			all = append(all, span{l.node, l.term, l.at, l.at})
		}
		all[len(all)-1].to = l.at
	}
	return all
}
