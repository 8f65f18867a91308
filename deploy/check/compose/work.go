package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// line is what a leader-only child has said of its work.
type line struct {
	at   time.Time
	node string
	term int64
}

var spoken = regexp.MustCompile(`^(\S+) (?:begins|works|ends) node=(\S+) site=\S+ term=(\d+)$`)

// parse reads what a container has printed; all else is the daemon's own log.
func parse(log string) ([]line, error) {
	var lines []line
	for text := range strings.Lines(log) {
		m := spoken.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return nil, err
		}
		term, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line{at, m[2], term})
	}
	return lines, nil
}

// exclusive tells whether no two terms were ever at work at once: whoever works has the highest term so far, and no term has
// two nodes. The containers share one clock. It sorts the lines by time.
func exclusive(lines []line) error {
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	for i := 1; i < len(lines); i++ {
		before, now := lines[i-1], lines[i]
		if now.term < before.term || (now.term == before.term && now.node != before.node) {
			return fmt.Errorf("two worked at once: %s in term %d at %s, after %s in term %d at %s",
				now.node, now.term, now.at.Format(time.RFC3339Nano), before.node, before.term, before.at.Format(time.RFC3339Nano))
		}
	}
	return nil
}

// span is one term's work.
type span struct {
	node     string
	term     int64
	from, to time.Time
}

// terms are the spans of work, by time.
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
