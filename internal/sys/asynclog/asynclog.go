// Package asynclog writes a log without waiting for its reader. A pipe that is not read blocks the processes that write
// to it; if that happened to the guard, work could outlive its lease (S1).
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

// maxBuffered is how many lines are buffered for the reader; more are lost.
const maxBuffered = 256

// Writer writes lines, one for each call of Write, in the background.
type Writer struct {
	lines  chan []byte
	lost   atomic.Int64
	onLost func(lines int64)
	done   chan struct{}
}

// New returns a writer to out. Its goroutine ends with Close. If lines were lost, it calls onLost after all buffered
// lines are written; onLost may call Write.
func New(out io.Writer, onLost func(lines int64)) *Writer {
	if out == os.Stderr {
		// By default, SIGPIPE ends the process when the reader has closed the pipe.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	w := &Writer{lines: make(chan []byte, maxBuffered), onLost: onLost, done: make(chan struct{})}
	go w.run(out)
	return w
}

func (w *Writer) run(out io.Writer) {
	defer close(w.done)
	for line := range w.lines {
		if line == nil {
			w.writeRest(out)
			return
		}
		if _, err := out.Write(line); err != nil {
			continue // there is no reader
		}
		if len(w.lines) > 0 {
			continue // the lost lines came after the buffered ones
		}
		w.reportLost()
	}
}

// writeRest writes the lines that came after Close, among them how many were lost.
func (w *Writer) writeRest(out io.Writer) {
	w.reportLost()
	for {
		select {
		case line := <-w.lines:
			out.Write(line)
		default:
			return
		}
	}
}

func (w *Writer) reportLost() {
	if n := w.lost.Swap(0); n > 0 {
		w.onLost(n)
	}
}

// Write buffers a line, or drops it if the buffer is full. It never blocks and never fails.
func (w *Writer) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.lost.Add(1)
	}
	return len(line), nil
}

// Close waits up to limit until the buffered lines are written. Lines that are written afterwards are lost.
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
