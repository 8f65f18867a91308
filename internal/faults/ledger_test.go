package faults

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
)

// child is the leader-only child: it writes "boottime-ns node term event pid" into one ledger for the whole fleet, when it
// begins, every 10 ms, and at its end. While the file IGNORE exists it does not stop when asked.
func child() {
	file, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	write := func(event string) {
		fmt.Fprintf(file, "%d %s %s %s %d\n", boottime.Now().Nanoseconds(), os.Getenv("ZKELECTD_NODE"), os.Getenv("ZKELECTD_TERM"), event, os.Getpid())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	write("start")
	for beat := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-beat:
			write("beat")
		case <-stop:
			if _, err := os.Stat(os.Getenv("IGNORE")); err != nil {
				write("end")
				os.Exit(0)
			}
		}
	}
}

// tenure is the life of one child, as far as it was written down.
type tenure struct {
	node       string
	term       int64
	pid        int
	start, end time.Duration
}

// readLedger returns the tenures by their start.
func readLedger(path string) ([]tenure, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []tenure
	last := make(map[int]int) // by pid
	for line := range strings.Lines(string(data)) {
		var t tenure
		var event string
		if _, err := fmt.Sscan(line, &t.start, &t.node, &t.term, &event, &t.pid); err != nil {
			return nil, fmt.Errorf("ledger line %q: %w", line, err)
		}
		t.end = t.start
		if i, ok := last[t.pid]; ok && event != "start" {
			all[i].end = max(all[i].end, t.end)
			continue
		}
		last[t.pid] = len(all)
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b tenure) int { return cmp.Compare(a.start, b.start) })
	return all, nil
}

// check reads S1 in the ledger: no two lives overlap, terms rise, and each has one node.
func check(all []tenure) []string {
	var faults []string
	owner := make(map[int64]string)
	for i, t := range all {
		if o, ok := owner[t.term]; ok && o != t.node {
			faults = append(faults, fmt.Sprintf("term %d is of %s and of %s", t.term, o, t.node))
		}
		owner[t.term] = t.node
		for _, before := range all[:i] {
			if t.start < before.end {
				faults = append(faults, fmt.Sprintf("two at work for %s: %s in term %d until %d, %s in term %d from %d",
					before.end-t.start, before.node, before.term, before.end, t.node, t.term, t.start))
			}
			if t.term < before.term {
				faults = append(faults, fmt.Sprintf("term %d of %s follows term %d of %s", t.term, t.node, before.term, before.node))
			}
		}
	}
	return faults
}

// idle is the time during which nobody worked: in all, and the longest.
func idle(all []tenure) (total, longest time.Duration) {
	for i := 1; i < len(all); i++ {
		gap := max(0, all[i].start-all[i-1].end)
		total, longest = total+gap, max(longest, gap)
	}
	return total, longest
}
