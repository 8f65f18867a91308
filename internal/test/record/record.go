// Package record keeps what the members of groups read, did and decided, for the fault campaign: nobody outside sees
// that, but the promises are about it. Only a program that is built with -tags record records.
package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Variable is the environment variable with the directory of the recordings.
const Variable = "RECORD"

// Line is a step of a member's machine, or a decision of a member as the elector.
type Line struct {
	// At is the time on CLOCK_BOOTTIME, which all processes of a machine share.
	At time.Duration
	// Root is the root of the group.
	Root, Node, Incarnation string

	// Event is the type of the event that the machine was given; it is empty for a decision.
	Event string `json:",omitempty"`
	// Lease is the end of the lease that the step sets, 0 if it sets none.
	Lease time.Duration `json:",omitempty"`
	// Starts is the term of the work that the step starts, 0 if it starts none.
	Starts int64 `json:",omitempty"`
	// Readies is the term whose READY the step sends, 0 if it sends none.
	Readies int64 `json:",omitempty"`
	// Running is set if the child exists after the step, and Releases if the step sends RELEASE.
	Running, Releases bool `json:",omitempty"`
	// Read is the decision that the member has read, and Holders are those who hold leadership by what it has read.
	Read    *Decision `json:",omitempty"`
	Holders []Holder  `json:",omitempty"`

	// Decided is what the elector has decided.
	Decided *Decision `json:",omitempty"`
}

// Decision is an election. Written is the time of its write in milliseconds, and Transaction the id, once it was read.
type Decision struct {
	Term                     int64
	Node, Incarnation, Cause string
	Written, Transaction     int64 `json:",omitempty"`
}

// Holder is who holds leadership in a term.
type Holder struct {
	Term        int64
	Incarnation string
}

// open opens the file of this process.
var open = sync.OnceValues(func() (*os.File, error) {
	name := filepath.Join(os.Getenv(Variable), fmt.Sprintf("%d.record", os.Getpid()))
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
})

// Write records a line. It panics if it cannot, since the campaign would miss what follows.
func Write(l Line) {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	file, err := open()
	if err != nil {
		panic(err)
	}
	if _, err := file.Write(append(data, '\n')); err != nil {
		panic(err)
	}
}

// Read calls see with all lines in a directory; those of one member come in their order.
func Read(dir string, see func(Line)) error { return NewReader(dir).Read(see) }

// Reader reads the lines in a directory while they are written.
type Reader struct {
	dir  string
	read map[string]int64 // how much of each file was read
}

// NewReader returns a reader of a directory.
func NewReader(dir string) *Reader { return &Reader{dir, make(map[string]int64)} }

// Read calls see with the lines that it has not read yet; those of one member come in their order.
func (r *Reader) Read(see func(Line)) error {
	files, err := filepath.Glob(filepath.Join(r.dir, "*.record"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := r.readFile(name, see); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) readFile(name string, see func(Line)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(r.read[name], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	for text := range bytes.Lines(data) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break // it is being written, or the process was killed meanwhile
		}
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("%s: %.80q: %w", name, text, err)
		}
		see(l)
		r.read[name] += int64(len(text))
	}
	return nil
}
