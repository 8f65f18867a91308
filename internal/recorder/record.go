package recorder

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Kind is the kind of a record.
type Kind byte

// The kinds of records. The values are those of the types of the same name in this package, encoded by package corejson.
const (
	// KindMember begins, or begins again, the records of a member: an [About]. The states follow.
	KindMember Kind = 'M'
	// KindState is the state of one part of the core before what follows. Its key is the part.
	KindState Kind = 'S'
	// KindSnapshot, KindSlot and KindPolicy are what later records refer to: a [cluster.Snapshot], a [cluster.SlotState] whose key is
	// the slot, and a [cluster.Policy].
	KindSnapshot Kind = 'R'
	KindSlot     Kind = 'O'
	KindPolicy   Kind = 'P'
	// KindStep, KindObserve, KindQuestion, KindDecide and KindResize are calls of the core.
	KindStep     Kind = 'E'
	KindObserve  Kind = 'W'
	KindQuestion Kind = 'Q'
	KindDecide   Kind = 'D'
	KindResize   Kind = 'Z'
	// KindEnd ends the records of a member whose loop has ended.
	KindEnd Kind = 'X'
	// KindLost says how many records were lost before it: a number.
	KindLost Kind = 'L'
)

// The parts of the core, as keys of [KindState].
const (
	PartMachine  = "machine"
	PartWatchdog = "watchdog"
	PartElector  = "elector"
	PartResizer  = "resizer"
)

// Record is one record of a recording.
type Record struct {
	// Source identifies the member within the run; 0 is the recorder itself.
	Source uint64
	Kind   Kind
	Key    string
	// Data is the value. It is valid until the next record is read.
	Data []byte

	seq uint64
}

// maxRecord bounds a record that is read.
const maxRecord = 64 << 20

// deltas writes and reads records as differences: each holds what has changed between the first and the last difference to the
// record before of the same kind and key.
type deltas struct {
	seq  uint64
	last map[string][]byte
}

func slotOf(kind Kind, key string) string { return string(rune(kind)) + key }

// reset forgets all earlier records.
func (d *deltas) reset() { d.last = make(map[string][]byte) }

// maxHead is the size of what precedes a record's data at most, without its key.
const maxHead = 1 + 5*binary.MaxVarintLen64

// append appends a record to b.
func (d *deltas) append(b []byte, source uint64, kind Kind, key string, data []byte) []byte {
	d.seq++
	name := slotOf(kind, key)
	prefix, suffix := common(d.last[name], data)
	if kind != KindMember && kind != KindState { // those rarely have a successor
		d.last[name] = append(d.last[name][:0], data...)
	}
	middle := data[prefix : len(data)-suffix]
	head := make([]byte, 0, maxHead+len(key))
	head = append(head, byte(kind))
	head = binary.AppendUvarint(head, source)
	head = binary.AppendUvarint(head, d.seq)
	head = append(binary.AppendUvarint(head, uint64(len(key))), key...)
	head = binary.AppendUvarint(binary.AppendUvarint(head, uint64(prefix)), uint64(suffix))
	b = slices.Grow(b, binary.MaxVarintLen64+len(head)+len(middle))
	b = binary.AppendUvarint(b, uint64(len(head)+len(middle)))
	return append(append(b, head...), middle...)
}

// common returns the lengths of the beginning and of the end that two texts share.
func common(a, b []byte) (prefix, suffix int) {
	n := min(len(a), len(b))
	for prefix < n && a[prefix] == b[prefix] {
		prefix++
	}
	for suffix < n-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}

// errGap is the error of a record whose predecessor is missing.
var errGap = errors.New("records before it are missing")

// apply completes a record that was read.
func (d *deltas) apply(r rawRecord) (Record, error) {
	if r.kind == KindMember {
		d.reset()
	} else if d.last == nil || r.seq != d.seq+1 {
		d.last = nil
		return Record{}, errGap
	}
	d.seq = r.seq
	before := d.last[slotOf(r.kind, r.key)]
	if r.prefix > len(before) || r.suffix > len(before)-r.prefix {
		d.last = nil
		return Record{}, fmt.Errorf("a damaged record: it refers to %d bytes of %d", r.prefix+r.suffix, len(before))
	}
	data := make([]byte, 0, r.prefix+len(r.middle)+r.suffix)
	data = append(append(append(data, before[:r.prefix]...), r.middle...), before[len(before)-r.suffix:]...)
	d.last[slotOf(r.kind, r.key)] = data
	return Record{Source: r.source, Kind: r.kind, Key: r.key, Data: data, seq: r.seq}, nil
}

// rawRecord is a record as it is in the file.
type rawRecord struct {
	kind           Kind
	source, seq    uint64
	key            string
	prefix, suffix int
	middle         []byte
}

// readRecord reads the next record of a stream.
func readRecord(r *bufio.Reader) (rawRecord, error) {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return rawRecord{}, err
	}
	if size > maxRecord {
		return rawRecord{}, fmt.Errorf("a damaged record of %d bytes", size)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil || len(data) < int(size) {
		return rawRecord{}, io.ErrUnexpectedEOF
	}
	return parseRecord(data)
}

func parseRecord(data []byte) (rawRecord, error) {
	if len(data) == 0 {
		return rawRecord{}, errors.New("a damaged record: it is empty")
	}
	rec := rawRecord{kind: Kind(data[0])}
	data = data[1:]
	damaged := false
	number := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			damaged = true
			return 0
		}
		data = data[n:]
		return v
	}
	rec.source, rec.seq = number(), number()
	if n := number(); n <= uint64(len(data)) {
		rec.key, data = string(data[:n]), data[n:]
	} else {
		damaged = true
	}
	prefix, suffix := number(), number()
	if damaged || prefix > maxRecord || suffix > maxRecord {
		return rawRecord{}, errors.New("a damaged record")
	}
	rec.prefix, rec.suffix, rec.middle = int(prefix), int(suffix), data
	return rec, nil
}
