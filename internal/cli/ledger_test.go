package cli

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// openLedger opens the file in which all children of a fleet record when they work.
func openLedger() *os.File {
	file, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return file
}

// ledgerChild is a leader-only child that records when it works: lines of "boottime-ns node term event" in one file for the
// whole fleet. MODE selects its behavior.
func ledgerChild() {
	file := openLedger()
	write := func(event string) {
		fmt.Fprintf(file, "%d %s %s %s\n", boottime.Now().Nanoseconds(), os.Getenv("ZKELECTD_NODE"), os.Getenv("ZKELECTD_TERM"), event)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM) // before it records that it works
	write("start")
	mode := os.Getenv("MODE")
	switch mode {
	case "notify":
		notifyReady("X_ZKELECTD_VALUE=tcp://" + os.Getenv("ZKELECTD_NODE") + ":7000\nREADY=1")
	case "values": // more often than they can be written
		notifyReady("X_ZKELECTD_VALUE=0\nREADY=1")
		next := time.NewTicker(time.Millisecond)
		for i := range manyValues {
			<-next.C
			notifyReady(fmt.Sprintf("X_ZKELECTD_VALUE=%s-%d", os.Getenv("ZKELECTD_NODE"), i+1))
		}
	}
	beat := time.NewTicker(10 * time.Millisecond)
	var crash <-chan time.Time
	if mode == "crash" {
		crash = time.After(200 * time.Millisecond)
	}
	for {
		select {
		case <-beat.C:
			write("beat")
		case <-crash:
			write("end")
			os.Exit(3)
		case <-stop:
			if mode != "ignore-term" {
				write("end")
				os.Exit(0)
			}
		}
	}
}

// manyValues is how many values a child in the mode values publishes.
const manyValues = 2000

// notifyReady says something to the daemon, such as that the child works.
func notifyReady(message string) {
	c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err == nil {
		_, err = io.WriteString(c, message)
		c.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tenure is the life of one child, from its lines in the ledger.
type tenure struct {
	node, term string
	start, end int64
	ended      bool
}

// scanLedger scans each line of a ledger into the fields, and calls f.
func scanLedger(t *testing.T, path string, f func(), fields ...any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		if _, err := fmt.Sscan(line, fields...); err != nil {
			t.Fatalf("ledger line %q: %v", line, err)
		}
		f()
	}
}

// ledger returns the tenures, sorted by start.
func ledger(t *testing.T, path string) []tenure {
	t.Helper()
	var all []tenure
	var at int64
	var node, term, event string
	scanLedger(t, path, func() {
		if event == "start" {
			all = append(all, tenure{node: node, term: term, start: at, end: at})
			return
		}
		for i := range slices.Backward(all) {
			if all[i].node == node && all[i].term == term {
				all[i].end, all[i].ended = at, event == "end"
				break
			}
		}
	}, &at, &node, &term, &event)
	slices.SortFunc(all, func(a, b tenure) int { return cmp.Compare(a.start, b.start) })
	return all
}

// checkNoOverlap checks S1 in the ledger: no two children worked at the same time, and terms rose.
func checkNoOverlap(t *testing.T, all []tenure) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.start < a.end {
			t.Errorf("two children at work: %s (term %s) until %d, %s (term %s) from %d", a.node, a.term, a.end, b.node, b.term, b.start)
		}
		if b.term < a.term {
			t.Errorf("term %s of %s follows term %s of %s", b.term, b.node, a.term, a.node)
		}
	}
}
