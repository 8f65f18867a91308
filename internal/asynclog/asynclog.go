// Package asynclog writes a log without ever waiting for whoever reads it. A pipe that nobody empties holds up everybody who
// writes into it: if that were the guard, work would outlive its lease (S1).
package asynclog

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// room is how many lines wait for a reader; more are lost.
const room = 256

// Writer passes on lines, one to a call of Write, as far as they are read.
type Writer struct {
	lines chan []byte
	lost  atomic.Int64
	told  func(lost int64)
	done  chan struct{}
}

// New writes to out, from a goroutine of its own that ends with Close. When lines were lost, told is called once the
// others are written; it may write.
func New(out io.Writer, told func(lost int64)) *Writer {
	if out == os.Stderr {
		// A reader that is gone must not end the process either, which is what SIGPIPE does by default.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	w := &Writer{lines: make(chan []byte, room), told: told, done: make(chan struct{})}
	go w.run(out)
	return w
}

func (w *Writer) run(out io.Writer) {
	defer close(w.done)
	for line := range w.lines {
		if line == nil {
			return
		}
		if _, err := out.Write(line); err != nil {
			continue // there is nobody to tell
		}
		if len(w.lines) > 0 {
			continue // what was lost came after these
		}
		if n := w.lost.Swap(0); n > 0 {
			w.told(n)
		}
	}
}

// Write takes a line, or loses it. It always succeeds, at once.
func (w *Writer) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.lost.Add(1)
	}
	return len(line), nil
}

// Close gives what is not written yet a last moment. What is written afterwards is lost.
func (w *Writer) Close(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case w.lines <- nil:
	case <-t.C:
		return
	}
	select {
	case <-w.done:
	case <-t.C:
	}
}
