package asynclog

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

func TestLinesStayWholeAndInOrder(t *testing.T) {
	r, out := pipe(t)
	w := New(out, func(int64) { t.Error("lines were lost") })
	var want strings.Builder
	for i := range maxBuffered {
		line := fmt.Appendf(nil, "line %d\n", i)
		want.Write(line)
		if n, err := w.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
		clear(line) // the caller may reuse it
	}
	w.Close(time.Minute)
	out.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != want.String() {
		t.Errorf("%q, %v", got, err)
	}
}

// Lines are lost, without blocking, while the pipe is not read; later the log says how many.
func TestWriteDoesNotBlock(t *testing.T) {
	r, out := pipe(t)
	var w *Writer
	w = New(out, func(n int64) { fmt.Fprintf(w, "lost %d\n", n) })
	line := []byte(strings.Repeat("x", 4095) + "\n")
	sent := 0
	for began := time.Now(); w.lost.Load() < 10; sent++ {
		w.Write(line)
		if time.Since(began) > time.Minute {
			t.Fatal("Write blocks, or no line is lost")
		}
	}
	w.Close(time.Millisecond) // does not block either
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	lines, lost := 0, 0
	for s := bufio.NewScanner(r); lines+lost < sent && s.Scan(); {
		if n := 0; strings.HasPrefix(s.Text(), "lost") {
			fmt.Sscanf(s.Text(), "lost %d", &n)
			lost += n
		} else {
			lines++
		}
	}
	if lost < 10 || lines+lost != sent {
		t.Errorf("%d sent, %d read, %d reported as lost", sent, lines, lost)
	}
	w.Close(time.Minute)
}

// Lines can be lost before the reader is slow: Close reports them as well.
func TestCloseReportsLostLines(t *testing.T) {
	r, out := pipe(t)
	start := make(chan struct{})
	var w *Writer
	w = New(waiting{out, start}, func(n int64) { fmt.Fprintf(w, "lost %d\n", n) })
	for w.lost.Load() == 0 {
		w.Write([]byte("x\n"))
	}
	want := fmt.Sprintf("lost %d\n", w.lost.Load())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.Close(time.Minute)
	}()
	close(start)
	<-closed
	out.Close()
	if got, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(got), want) {
		t.Errorf("%q, %v", got, err)
	}
}

// waiting writes nothing before start is closed.
type waiting struct {
	io.Writer
	start chan struct{}
}

func (w waiting) Write(line []byte) (int, error) {
	<-w.start
	return w.Writer.Write(line)
}
