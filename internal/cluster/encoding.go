package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// FormatVersion is the "v" that this build writes, and the newest that it reads, except in a record with versions of
// its own.
const FormatVersion = 1

// formats returns the format version to write for a record, and the newest that this build reads.
func formats(r record) (version, newest int) {
	if own, ok := r.(interface{ formats() (version, newest int) }); ok {
		return own.formats()
	}
	return FormatVersion, FormatVersion
}

// Duration is a duration that records hold as text, such as "2.7s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v < 0 {
		err = errors.New("negative duration")
	}
	*d = Duration(v)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }

// NewerVersionError is the error for a record in a format that this build does not know. Such a record is not damaged
// and is left alone (docs/protocol.md, Records of a newer version).
type NewerVersionError struct {
	Path    string
	Version int
	// Known is the newest format version that this build reads.
	Known int
}

func (e *NewerVersionError) Error() string {
	return fmt.Sprintf("znode %s has format version %d, this zkelectd reads up to %d: upgrade this host", e.Path,
		e.Version, max(e.Known, FormatVersion))
}

// Header is common to all records: the format version, and the fields that this build does not know. They are kept when
// a record is rewritten, so that an older daemon does not drop what a newer one wrote.
type Header struct {
	V       int                        `json:"v"`
	Unknown map[string]json.RawMessage `json:"-"`
}

func (h *Header) header() *Header { return h }

type record interface{ header() *Header }

// Encode returns a record as JSON in the current format version.
func Encode(r record) []byte {
	h := r.header()
	h.V, _ = formats(r)
	data := marshal(r)
	if len(h.Unknown) == 0 {
		return data
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		panic(fmt.Sprintf("cluster: encode %T: %v", r, err))
	}
	for key, value := range h.Unknown {
		if _, known := all[key]; !known {
			all[key] = value
		}
	}
	return marshal(all)
}

// marshal encodes without escapes for HTML, which would turn a "<" into six bytes each time that a record is rewritten.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// All fields of records can be marshaled, so this is a programming error.
		panic(fmt.Sprintf("cluster: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode decodes a record. The error names path, for operators.
func Decode(path string, data []byte, r record) error {
	if len(data) == 0 {
		return fmt.Errorf("znode %s is empty: not written by zkelectd", path)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("znode %s is not a zkelectd record: %w", path, err)
	}
	var probe struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(data, &probe); err != nil || probe.V == nil || *probe.V < 1 {
		return fmt.Errorf("znode %s has no format version \"v\": not written by zkelectd", path)
	}
	if _, newest := formats(r); *probe.V > newest {
		return &NewerVersionError{Path: path, Version: *probe.V, Known: newest}
	}
	if err := json.Unmarshal(data, r); err != nil {
		return fmt.Errorf("znode %s is not a valid record: %w", path, err)
	}
	known := jsonKeys(reflect.TypeOf(r).Elem())
	for key := range all {
		// encoding/json ignores case: a "Term" that was kept could override the "term" that is written next.
		if slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, key) }) {
			delete(all, key)
		}
	}
	if len(all) > 0 {
		r.header().Unknown = all
	}
	return nil
}

func jsonKeys(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keys = append(keys, jsonKeys(f.Type)...)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// MaxRecord bounds the size of a record to half of what a server accepts. Unknown fields are kept when a record is
// rewritten, so a larger one could become too large to be written ever again.
const MaxRecord = 500 << 10

// recheckSize is the size above which a record is encoded again to see whether the result is too large. A smaller
// record always fits.
const recheckSize = 4 << 10

// ReadStored decodes what was read from the znode at path.
func ReadStored[T any, R interface {
	*T
	record
}](path string, data []byte, stat Stat, exists bool) Stored[T] {
	s := Stored[T]{Exists: exists, Stat: stat}
	if !exists {
		return s
	}
	if len(data) > MaxRecord {
		s.Err = fmt.Errorf("znode %s has %d bytes, more than a zkelectd record may have (%d)", path, len(data), MaxRecord)
		return s
	}
	var rec T
	if s.Err = Decode(path, data, R(&rec)); s.Err != nil {
		return s
	}
	if of, ok := any(&rec).(interface{ validate(Stat) error }); ok {
		if err := of.validate(stat); err != nil {
			s.Err = fmt.Errorf("znode %s is invalid: %w", path, err)
			return s
		}
	}
	// Re-encoding may grow a hostile record: an empty verdict of two bytes becomes fifty.
	if len(data) > recheckSize && len(Encode(R(&rec))) > MaxRecord {
		s.Err = fmt.Errorf("znode %s has a record that would exceed %d bytes when rewritten", path, MaxRecord)
		return s
	}
	s.Record = rec
	return s
}
