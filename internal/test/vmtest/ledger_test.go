package vmtest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledger notes when the work has run, on which host and in which term. It is outside of the machines.
type ledger struct {
	conn net.PacketConn

	mu    sync.Mutex
	first map[string]time.Time // by name and term
	last  map[string]time.Time
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{conn: conn, first: make(map[string]time.Time), last: make(map[string]time.Time)}
	var reading sync.WaitGroup
	reading.Go(l.read)
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	return l
}

func (l *ledger) read() {
	var line [256]byte
	for {
		n, _, err := l.conn.ReadFrom(line[:])
		if err != nil {
			return
		}
		name, _, _ := strings.Cut(string(line[:n]), " ")
		now := time.Now()
		l.mu.Lock()
		if l.first[name].IsZero() {
			l.first[name] = now
		}
		l.last[name] = now
		l.mu.Unlock()
	}
}

func (l *ledger) port() int { return l.conn.LocalAddr().(*net.UDPAddr).Port }

// span returns when the work of a host has run first and last.
func (l *ledger) span(name string) (first, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first[name], l.last[name]
}

// begun reports whether the work of a host has run.
func (l *ledger) begun(name string) bool {
	first, _ := l.span(name)
	return !first.IsZero()
}
