package recorder

import (
	"bufio"
	"cmp"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Visitor receives what a recording contains, in order.
type Visitor interface {
	// Run begins a run, or goes on with it in the next file.
	Run(h Header)
	// Record receives a record. After a gap, the records of a member begin again with [KindMember].
	Record(r Record)
	// Gap says that records are missing or cannot be read.
	Gap(reason string)
}

// IsRecording reports whether a file begins as a recording does, or is one in which nothing is recorded yet.
func IsRecording(path string) (bool, error) {
	file, err := openRegular(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() == 0 {
		return strings.HasSuffix(path, extension), err
	}
	_, err = newFrameReader(file)
	return err == nil, nil
}

// openRegular opens a file for reading. Anything else might block, and the user whose directory it is in may have put a
// link there.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed: name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file", path))
	}
	return file, nil
}

// Files returns the recordings in a directory.
func Files(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "*"+extension))
}

// NodeOf returns what the files of one node in one directory have in common.
func NodeOf(path string) string {
	name := strings.TrimSuffix(path, extension)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".a"), ".b")
}

// firstHeader returns the header that a file begins with.
func firstHeader(r io.Reader) (Header, error) {
	frames, err := newFrameReader(r)
	if err != nil {
		return Header{}, err
	}
	kind, payload, err := frames.next()
	if err != nil || kind != frameHeader {
		return Header{}, fmt.Errorf("a damaged recording: it has no header")
	}
	return decodeHeader(payload)
}

// Read reads the files of one node, the oldest first, whatever their order. The error is about a file that cannot be read at all.
func Read(paths []string, v Visitor) error {
	type part struct {
		file   *os.File
		header Header
	}
	var parts []part
	defer func() {
		for _, p := range parts {
			p.file.Close()
		}
	}()
	for _, path := range paths {
		file, err := openRegular(path)
		if err != nil {
			return err
		}
		if info, err := file.Stat(); err == nil && info.Size() == 0 {
			file.Close() // the file that will be used next
			continue
		}
		parts = append(parts, part{file: file})
		p := &parts[len(parts)-1]
		if p.header, err = firstHeader(file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.header.Segment, b.header.Segment) })
	r := reader{v: v}
	for _, p := range parts {
		if err := r.read(bufio.NewReader(p.file), filepath.Base(p.file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// reader reads the files of one node one after another.
type reader struct {
	v       Visitor
	run     string
	sources map[uint64]*deltas
}

// read reads one file.
func (r *reader) read(file io.Reader, name string) error {
	frames, err := newFrameReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s := &chunks{frames: frames}
	for s.next() {
		h, err := decodeHeader(s.header)
		if err != nil {
			r.v.Gap(name + ": " + err.Error())
			return nil
		}
		if h.Torn > 0 {
			r.v.Gap(fmt.Sprintf("%s: %d bytes were cut off: a crash had interrupted a write", name, h.Torn))
		}
		if h.Run != r.run {
			r.run, r.sources = h.Run, make(map[uint64]*deltas)
		}
		r.v.Run(h)
		if err := r.records(s); err != nil {
			r.v.Gap(fmt.Sprintf("%s: the rest of a run cannot be read: %v", name, err))
			s.skip()
		}
	}
	if !errors.Is(s.err, io.EOF) {
		r.v.Gap(name + ": its end is " + s.err.Error())
	}
	return nil
}

// records reads the records up to the next header.
func (r *reader) records(s *chunks) error {
	stream := bufio.NewReader(flate.NewReader(bufio.NewReader(s)))
	for {
		raw, err := readRecord(stream)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil // the stream has no end mark
		case err != nil:
			return err
		}
		r.record(raw)
	}
}

func (r *reader) record(raw rawRecord) {
	if raw.kind == KindLost {
		r.v.Gap(fmt.Sprintf("%.20s records were lost because the disk was too slow", raw.middle))
		return
	}
	d := r.sources[raw.source]
	if d == nil {
		d = new(deltas)
		r.sources[raw.source] = d
	}
	readable := d.last != nil
	rec, err := d.apply(raw)
	if err == nil {
		r.v.Record(rec)
	} else if readable {
		r.v.Gap(fmt.Sprintf("member %d of the run: %v", raw.source, err))
	}
}

// chunks reads the payloads of the chunks of a run as one stream.
type chunks struct {
	frames *frameReader
	header []byte // of the run
	ahead  []byte // the header that has ended the run; nil if there is none
	rest   []byte // of the chunk
	err    error  // the end of the file
}

// next goes to the next header. It returns false at the end of the file.
func (c *chunks) next() bool {
	c.skip()
	c.header, c.ahead, c.rest = c.ahead, nil, nil
	return c.header != nil
}

// skip goes to the end of the run.
func (c *chunks) skip() {
	for c.ahead == nil && c.err == nil {
		c.fill()
	}
	c.rest = nil
}

// fill reads a frame.
func (c *chunks) fill() {
	kind, payload, err := c.frames.next()
	switch {
	case err != nil:
		c.err = err
	case kind == frameHeader:
		c.ahead = payload
	case kind == frameChunk:
		c.rest = payload
	default:
		c.err = errTorn
	}
}

// Read implements io.Reader.
func (c *chunks) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.ahead != nil || c.err != nil {
			return 0, io.EOF
		}
		c.fill()
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
