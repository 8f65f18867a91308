package recorder

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/secretfile"
)

// MinSize is the smallest size of a recording, in bytes.
const MinSize = 256 << 10

// Limits of what waits for the disk, in memory.
const (
	maxQueued      = 4096
	maxQueuedBytes = 2 << 20
	maxChunk       = 64 << 10
)

// The writer waits for more records, since each chunk costs a write and its own compression: for gatherTime after a decision or a
// transition, for idleTime after records of an idle group. A daemon that is killed loses what it has recorded in this time.
const (
	gatherTime = 50 * time.Millisecond
	idleTime   = time.Second
)

// retryInterval is how long the recorder waits after an error before it opens its files again.
const retryInterval = 10 * time.Second

// Options configure a Recorder.
type Options struct {
	// Dir is the directory of the two files; it is created if only it is missing. Size is how large they may become together.
	Dir  string
	Size int64
	// Node, Version and Boot are written into the headers.
	Node, Version, Boot string
	Log                 *slog.Logger
}

// Recorder records for all groups of a daemon. It is safe for concurrent use. A nil Recorder records nothing.
type Recorder struct {
	opt    Options
	queue  chan []byte   // nil ends the writer
	soon   chan struct{} // the writer waits for gatherTime only
	hurry  chan struct{} // ends the writer's wait for more records
	queued atomic.Int64
	lost   atomic.Int64 // records that the writer has not mentioned yet
	total  atomic.Int64 // records that were lost in all
	epoch  atomic.Uint64
	member atomic.Uint64
	done   chan struct{}

	// What follows belongs to the writer.
	retry   time.Duration // retryInterval; a variable part for the tests
	disk    disk
	run     string
	out     *os.File
	stream  *flate.Writer
	chunk   bytes.Buffer // what the stream has written
	frame   []byte
	size    int64
	segment int64
	failed  time.Duration // when the last error came, 0 if the files are open
	logged  string
	opened  bool
}

// disk opens the files; a variable part for the tests.
type disk interface {
	// open opens the file to go on with; next, the one that replaces the older one.
	open() (file *os.File, state fileState, err error)
	next() (file *os.File, err error)
	// close gives the directory up.
	close()
}

// New starts a recorder. Its goroutine ends with Close. Errors are logged, once each; they never reach the caller.
func New(opt Options) *Recorder { return newRecorder(opt, &directory{dir: opt.Dir, node: opt.Node}) }

func newRecorder(opt Options, d disk) *Recorder {
	r := &Recorder{opt: opt, queue: make(chan []byte, maxQueued), soon: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}), retry: retryInterval, disk: d, run: rand.Text()}
	signal(r.soon) // the files exist soon after the start
	go r.write()
	return r
}

// Lost returns how many records were lost because the disk was too slow or full.
func (r *Recorder) Lost() int64 {
	if r == nil {
		return 0
	}
	return r.total.Load()
}

// Close waits up to limit until what was recorded is written. What is recorded afterwards is lost.
func (r *Recorder) Close(limit time.Duration) {
	if r == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case r.queue <- nil:
		signal(r.hurry)
	case <-t.C:
		return
	}
	select {
	case <-r.done:
	case <-t.C:
	}
}

// full reports whether the disk does not keep up.
func (r *Recorder) full() bool {
	return r.queued.Load() >= maxQueuedBytes/2 || len(r.queue) >= maxQueued/2
}

// send queues a record. It reports whether there was room.
func (r *Recorder) send(record []byte) bool {
	if n := r.queued.Add(int64(len(record))); n <= maxQueuedBytes {
		select {
		case r.queue <- record:
			if n >= maxChunk {
				signal(r.hurry)
			}
			return true
		default:
		}
	}
	r.queued.Add(-int64(len(record)))
	return false
}

// signal wakes the receiver of a channel with one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// miss counts a record that was not queued.
func (r *Recorder) miss() {
	r.lost.Add(1)
	r.total.Add(1)
}

// write is the writer's goroutine.
func (r *Recorder) write() {
	defer close(r.done)
	defer func() {
		if r.out != nil {
			r.out.Close()
		}
		r.disk.close()
	}()
	for record := range r.queue {
		if record == nil {
			return
		}
		r.gather()
		if !r.collect(record) {
			return
		}
	}
}

// gather waits for more records.
func (r *Recorder) gather() {
	if r.queued.Load() >= maxChunk {
		return
	}
	t := time.NewTimer(idleTime)
	defer t.Stop()
	soon := r.soon
	for {
		select {
		case <-soon:
			t.Reset(gatherTime)
			soon = nil
		case <-t.C:
			return
		case <-r.hurry:
			return
		}
	}
}

// collect writes a record, and those that are queued behind it, as one chunk. It returns false at the end.
func (r *Recorder) collect(record []byte) bool {
	more := true
	n := 0
	if err := r.ready(); err != nil {
		r.fail(err)
	}
	if lost := r.lost.Load(); r.out != nil && lost > 0 {
		r.lost.Add(-lost)
		var d deltas
		d.reset()
		r.put(d.append(nil, 0, KindLost, "", strconv.AppendInt(nil, lost, 10)))
	}
	for record != nil {
		r.queued.Add(-int64(len(record)))
		n += len(record)
		r.put(record)
		record = nil
		if n < maxChunk {
			select {
			case next := <-r.queue:
				record, more = next, next != nil
			default:
			}
		}
	}
	if r.out != nil {
		if err := r.flush(); err != nil {
			r.fail(err)
		}
	}
	return more
}

// put adds a record to the chunk, or loses it if there is no file.
func (r *Recorder) put(record []byte) {
	if r.out == nil {
		r.miss()
		return
	}
	r.stream.Write(record) //nolint:errcheck // it writes to memory
}

// ready opens the files if necessary.
func (r *Recorder) ready() error {
	if r.out != nil {
		return nil
	}
	if r.failed != 0 && boottime.Now() < r.failed+r.retry {
		return nil
	}
	file, state, err := r.disk.open()
	if err != nil {
		return err
	}
	r.segment = state.segment
	if r.segment == 0 {
		r.segment = 1
	}
	return r.begin(file, state)
}

// begin goes on in a file, with a header and a new stream. All members begin again, so that each file can be read by itself.
func (r *Recorder) begin(file *os.File, state fileState) error {
	if r.out != nil {
		r.out.Close()
	}
	r.out, r.size = file, state.size
	var start []byte
	if state.size == 0 {
		start = append(start, magic...)
	}
	head, err := json.Marshal(Header{
		Node: r.opt.Node, Version: r.opt.Version, Boot: r.opt.Boot, PID: os.Getpid(), Run: r.run, Segment: r.segment,
		At: cluster.Duration(boottime.Now()), Wall: time.Now(), Torn: state.torn,
	})
	if err != nil {
		return err
	}
	if err := r.writeFile(appendFrame(start, frameHeader, head)); err != nil {
		return err
	}
	r.chunk.Reset()
	if r.stream == nil {
		if r.stream, err = flate.NewWriter(&r.chunk, flate.BestSpeed); err != nil {
			return err
		}
	} else {
		r.stream.Reset(&r.chunk)
	}
	if r.failed != 0 {
		r.opt.Log.Info("the flight recorder records again", "dir", r.opt.Dir)
	}
	if r.opened || r.failed != 0 { // else everything since the start is in this file
		r.epoch.Add(1)
	}
	r.failed, r.logged, r.opened = 0, "", true
	return nil
}

// flush writes the chunk, and goes on in the other file if this one is full.
func (r *Recorder) flush() error {
	if err := r.stream.Flush(); err != nil {
		return err
	}
	if err := secretfile.CheckLinked(r.out); err != nil {
		return err
	}
	r.frame = appendFrame(r.frame[:0], frameChunk, r.chunk.Bytes())
	r.chunk.Reset()
	if err := r.writeFile(r.frame); err != nil {
		return err
	}
	if r.size < r.opt.Size/2-maxChunk {
		return nil
	}
	file, err := r.disk.next()
	if err != nil {
		return err
	}
	r.segment++
	return r.begin(file, fileState{})
}

func (r *Recorder) writeFile(b []byte) error {
	n, err := r.out.Write(b)
	r.size += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// fail gives the files up for a while.
func (r *Recorder) fail(err error) {
	if r.out != nil {
		r.out.Close()
		r.out = nil
	}
	r.failed = boottime.Now()
	if text := err.Error(); text != r.logged {
		r.logged = text
		var exists *inUseError
		if errors.As(err, &exists) {
			text = exists.Error()
		}
		r.opt.Log.Warn("the flight recorder cannot write: going on without it", "dir", r.opt.Dir, "err", text,
			"hint", fmt.Sprintf("make the directory writable, or set recorder.dir or recorder.enabled: false; it is tried again every %s", retryInterval))
	}
}
