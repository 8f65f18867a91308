package recipes

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// sqlLog records which host accepted which writes.
type sqlLog struct {
	mu     sync.Mutex
	writes []sqlWrite
}

type sqlWrite struct {
	host  string
	id    int
	acked time.Time
}

func (l *sqlLog) add(host string, id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, sqlWrite{host, id, time.Now()})
}

// last returns the host of the last write that was accepted since a time.
func (l *sqlLog) last(since time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.writes); n > 0 && l.writes[n-1].acked.After(since) {
		return l.writes[n-1].host
	}
	return ""
}

// order returns the hosts that accepted writes, in order.
func (l *sqlLog) order() (order []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes {
		if len(order) == 0 || order[len(order)-1] != w.host {
			order = append(order, w.host)
		}
	}
	return order
}

// sqlWriter writes one row after another with a database's client program, which reads statements from its standard input. The
// function connect returns the command for the n-th connection; statement returns an INSERT that prints the row's id and the server's host.
type sqlWriter struct {
	log       *sqlLog
	first     int
	pause     time.Duration // between two sessions; 0 for 5ms
	connect   func(ctx context.Context, n int) *exec.Cmd
	statement func(id int) string
}

// start runs the writer until the end of the test.
func (w *sqlWriter) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		id := w.first
		for n := 0; ctx.Err() == nil; n++ {
			id = w.session(w.connect(ctx, n), id)
			select {
			case <-ctx.Done():
			case <-time.After(max(w.pause, 5*time.Millisecond)):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// session writes until a write fails, and returns the next id. A write that failed may have been done or not, so its id is not used again.
func (w *sqlWriter) session(cmd *exec.Cmd, id int) int {
	in, err := cmd.StdinPipe()
	if err != nil {
		return id
	}
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return id
	}
	defer cmd.Wait()
	defer in.Close()
	answers := bufio.NewScanner(out)
	for ; ; id++ {
		if _, err := io.WriteString(in, w.statement(id)+"\n"); err != nil || !answers.Scan() {
			return id + 1
		}
		if fields := strings.Fields(answers.Text()); len(fields) == 2 && fields[0] == strconv.Itoa(id) {
			w.log.add(fields[1], id)
		}
	}
}
