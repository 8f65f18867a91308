package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collected collects what a recording contains, as text.
type collected struct {
	runs    int
	records []string
	gaps    []string
}

func (c *collected) Run(Header)        { c.runs++ }
func (c *collected) Gap(reason string) { c.gaps = append(c.gaps, reason) }
func (c *collected) Record(r Record) {
	c.records = append(c.records, fmt.Sprintf("%c%s %s", r.Kind, r.Key, r.Data))
}

func (c *collected) steps() (n int) {
	for _, r := range c.records {
		if strings.HasPrefix(r, string(rune(KindStep))) {
			n++
		}
	}
	return n
}

func options(t *testing.T, log io.Writer) Options {
	return Options{Dir: filepath.Join(t.TempDir(), "recorder"), Size: MinSize, Node: "n/1", Version: "v1", Boot: "b", Log: slog.New(slog.NewTextHandler(log, nil))}
}

func newSource(r *Recorder) *Source {
	return r.NewSource(About{Group: "g", Root: "/g", Node: "n/1"}, Core{Machine: transition.New(transition.Options{Wall: time.Now})})
}

func read(t *testing.T, dir string) *collected {
	t.Helper()
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := new(collected)
	if err := Read(files, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsRecordedCanBeRead(t *testing.T) {
	opt := options(t, io.Discard)
	r := New(opt)
	s := newSource(r)
	snap := cluster.Snapshot{At: 5, Members: []cluster.Member{{Incarnation: cluster.Incarnation{Name: "n1-n_1"}}}}
	s.Step(time.Second, time.Unix(1, 0).UTC(), transition.Saw{Snapshot: snap})
	s.Step(2*time.Second, time.Unix(2, 0).UTC(), transition.Tick{})
	s.Step(3*time.Second, time.Unix(3, 0).UTC(), transition.Saw{Snapshot: snap})
	s.End("stopped")
	r.Close(time.Minute)
	c := read(t, opt.Dir)
	text := strings.Join(c.records, "\n")
	if c.steps() < 3 || !strings.Contains(text, `R {"At":"5ns"`) || !strings.Contains(text, `X "stopped"`) || len(c.gaps) > 0 {
		t.Errorf("recorded:\n%s\ngaps: %q", text, c.gaps)
	}
	if n := strings.Count(text, "\nR "); n > 2 { // a second time only if the first file began after the first record
		t.Errorf("an unchanged snapshot was recorded %d times", n)
	}
	info, err := os.Stat(filepath.Join(opt.Dir, "n%2F1.a.zkrec"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}

// step records a step that does not compress.
func step(s *Source, i int) {
	s.Step(time.Duration(i), time.Unix(int64(i), 0).UTC(), transition.ChildDead{Status: fmt.Sprintf("%x", bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(i * 7)}, 3))})
}

func TestTheSizeIsBounded(t *testing.T) {
	opt := options(t, io.Discard)
	r := New(opt)
	s := newSource(r)
	for i := range 40000 {
		for r.full() { // else most records would be lost
			r.waitForRoom(t)
		}
		step(s, i*2654435761)
	}
	r.Close(time.Minute)
	var size int64
	files, err := Files(opt.Dir)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > opt.Size || size < opt.Size/8 {
		t.Errorf("%d bytes, limit %d", size, opt.Size)
	}
	if c := read(t, opt.Dir); c.steps() < 200 || len(c.gaps) > 1 {
		t.Errorf("%d steps, gaps: %q", c.steps(), c.gaps)
	}
}

// waitForRoom waits until the writer has caught up.
func (r *Recorder) waitForRoom(t *testing.T) {
	limit := time.After(time.Minute)
	for tick := time.NewTicker(time.Millisecond); r.full(); <-tick.C {
		select {
		case <-limit:
			t.Fatal("the writer does not write")
		default:
		}
	}
}

func TestARestartGoesOnInTheSameFile(t *testing.T) {
	opt := options(t, io.Discard)
	for range 3 {
		r := New(opt)
		step(newSource(r), 1)
		r.Close(time.Minute)
	}
	if c := read(t, opt.Dir); c.runs != 3 || c.steps() < 3 || len(c.gaps) > 0 {
		t.Errorf("%d runs, %d steps, gaps: %q", c.runs, c.steps(), c.gaps)
	}
}

func TestATornTailIsCutOffAndReported(t *testing.T) {
	opt := options(t, io.Discard)
	r := New(opt)
	step(newSource(r), 1)
	r.Close(time.Minute)
	path := filepath.Join(opt.Dir, "n%2F1.a.zkrec")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	frame := appendFrame(nil, frameChunk, []byte("half of this was written"))
	if err := os.WriteFile(path, append(whole, frame[:20]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := read(t, opt.Dir); len(c.gaps) != 1 || !strings.Contains(c.gaps[0], "torn") || c.steps() == 0 {
		t.Errorf("%d steps, gaps: %q", c.steps(), c.gaps)
	}
	r = New(opt)
	step(newSource(r), 2)
	r.Close(time.Minute)
	if c := read(t, opt.Dir); c.runs != 2 || len(c.gaps) != 1 || !strings.Contains(c.gaps[0], "20 bytes were cut off") || c.steps() < 2 {
		t.Errorf("%d runs, %d steps, gaps: %q", c.runs, c.steps(), c.gaps)
	}
}

// blockedDisk is a disk on which opening a file blocks, as on one that does not answer.
type blockedDisk struct{ unblock chan struct{} }

func (d blockedDisk) open() (*os.File, fileState, error) {
	<-d.unblock
	return nil, fileState{}, errors.New("it did not answer")
}
func (d blockedDisk) next() (*os.File, error) { return nil, nil }
func (d blockedDisk) close()                  {}

// The loops of the daemon record: a disk that does not answer must not stop them.
func TestABlockedDiskDoesNotBlockTheLoop(t *testing.T) {
	d := blockedDisk{make(chan struct{})}
	r := newRecorder(options(t, io.Discard), d)
	s := newSource(r)
	for i := range 20000 {
		step(s, i)
	}
	if r.Lost() == 0 || r.queued.Load() > maxQueuedBytes {
		t.Errorf("%d records lost, %d bytes queued", r.Lost(), r.queued.Load())
	}
	r.Close(time.Millisecond) // it does not wait for the disk either
	close(d.unblock)
	r.Close(time.Minute)
}

// A pipe without a reader blocks a write.
type pipeDisk struct{ w *os.File }

func (d pipeDisk) open() (*os.File, fileState, error) { return d.w, fileState{}, nil }
func (d pipeDisk) next() (*os.File, error)            { return nil, errors.New("no other file") }
func (d pipeDisk) close()                             {}

func TestABlockedWriteDoesNotBlockTheLoop(t *testing.T) {
	reader, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(options(t, io.Discard), pipeDisk{w})
	s := newSource(r)
	for i := 0; r.Lost() == 0; i++ {
		step(s, i*2654435761)
	}
	reader.Close()
	r.Close(time.Minute)
}

func TestARemovedDirectoryIsMadeAgain(t *testing.T) {
	opt := options(t, io.Discard)
	r := New(opt)
	r.retry = 0
	s := newSource(r)
	await := func(what func() bool) {
		limit := time.After(time.Minute)
		for i := 0; !what(); i++ {
			step(s, i)
			signal(r.hurry)
			select {
			case <-limit:
				t.Fatal("the recorder does not go on")
			case <-time.After(time.Millisecond):
			}
		}
	}
	await(func() bool {
		files, err := Files(opt.Dir)
		return err == nil && len(files) == 2
	})
	if err := os.RemoveAll(opt.Dir); err != nil {
		t.Fatal(err)
	}
	await(func() bool { return r.epoch.Load() > 0 })
	step(s, 1)
	r.Close(time.Minute)
	if c := read(t, opt.Dir); c.steps() == 0 {
		t.Errorf("nothing is recorded; gaps: %q", c.gaps)
	}
}

func TestLostRecordsAreReported(t *testing.T) {
	opt := options(t, io.Discard)
	gate := make(chan struct{})
	r := newRecorder(opt, gatedDisk{&directory{dir: opt.Dir, node: opt.Node}, gate})
	s := newSource(r)
	for i := 0; r.Lost() < 5; i++ {
		step(s, i)
	}
	close(gate)
	r.waitForRoom(t)
	step(s, 1)
	r.Close(time.Minute)
	c := read(t, opt.Dir)
	if len(c.gaps) == 0 || !strings.Contains(strings.Join(c.gaps, "\n"), "records were lost") {
		t.Errorf("gaps: %q", c.gaps)
	}
}

// gatedDisk opens its files when the gate is open.
type gatedDisk struct {
	disk
	gate chan struct{}
}

func (d gatedDisk) open() (*os.File, fileState, error) {
	<-d.gate
	return d.disk.open()
}

func TestUnsafeFilesAreRefused(t *testing.T) {
	for name, prepare := range map[string]func(dir, path string) error{
		"a symbolic link": func(dir, path string) error { return os.Symlink(filepath.Join(dir, "target"), path) },
		"a hard link": func(dir, path string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "target"), []byte("keep"), 0o600), os.Link(filepath.Join(dir, "target"), path))
		},
		"a file that others can read": func(_, path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644)) },
		"a directory":                 func(_, path string) error { return os.Mkdir(path, 0o700) },
		"a directory of others":       func(dir, _ string) error { return os.Chmod(dir, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			opt := options(t, &log)
			if err := errors.Join(os.Mkdir(opt.Dir, 0o700), prepare(opt.Dir, filepath.Join(opt.Dir, "n%2F1.a.zkrec"))); err != nil {
				t.Fatal(err)
			}
			r := New(opt)
			step(newSource(r), 1)
			r.Close(time.Minute)
			if !strings.Contains(log.String(), "going on without it") || r.Lost() == 0 {
				t.Errorf("%d records lost, log: %s", r.Lost(), &log)
			}
			if data, err := os.ReadFile(filepath.Join(opt.Dir, "target")); err == nil && string(data) != "keep" {
				t.Errorf("the target contains %q", data)
			}
		})
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	var log bytes.Buffer
	opt := options(t, io.Discard)
	first := New(opt)
	step(newSource(first), 1)
	for first.queued.Load() > 0 {
		first.waitForRoom(t)
	}
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	second := New(opt)
	defer first.Close(time.Minute)
	step(newSource(second), 2)
	second.Close(time.Minute)
	if !strings.Contains(log.String(), "in use by another zkelectd") {
		t.Errorf("log: %s", &log)
	}
}

func TestNothingIsRecordedWithoutARecorder(t *testing.T) {
	var r *Recorder
	s := newSource(r)
	step(s, 1)
	s.Invalidate()
	s.End("")
	r.Close(time.Minute)
	if r.Lost() != 0 {
		t.Error("lost")
	}
}

func FuzzRead(f *testing.F) {
	var d deltas
	d.reset()
	head := []byte(`{"node":"n","run":"r","segment":1}`)
	f.Add([]byte(magic))
	f.Add(appendFrame(appendFrame([]byte(magic), frameHeader, head), frameChunk, d.append(nil, 1, KindMember, "", []byte("{}"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{v: new(collected)}
		if err := r.read(bytes.NewReader(data), "file"); err != nil && bytes.HasPrefix(data, []byte(magic)) {
			t.Fatal(err)
		}
		if raw, err := parseRecord(data); err == nil {
			d := deltas{last: map[string][]byte{}, seq: raw.seq - 1}
			d.apply(raw) //nolint:errcheck // it must not panic
		}
	})
}
