package corejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

type event interface{ apply() }

type ended struct{ Err error }

func (ended) apply() {}

type key struct {
	node string
	term int64
}

type inner struct {
	at    time.Time
	since map[key]time.Duration
	names map[string]inner
}

type core struct {
	opt     func()
	snap    cluster.Snapshot
	last    *inner
	events  []event
	list    []string
	pair    [2]bool
	ratio   float64
	data    []byte
	small   uint8
	unknown json.RawMessage
}

func sample() core {
	zone := time.FixedZone("", 3600)
	return core{
		opt: func() {},
		snap: cluster.Snapshot{
			At: 5 * time.Second, Self: cluster.Incarnation{ID: "n1", Name: "n1-0000000000000001-n_0000000001"},
			Elected: cluster.Stored[cluster.Elected]{Exists: true, Err: &cluster.NewerVersionError{Path: "/a", Version: 7}},
			Members: []cluster.Member{{Node: cluster.Stored[cluster.Node]{Record: cluster.Node{
				ID: "a<b>\"\u00e4", Labels: map[string]string{"b": "1", "a": "2"}, Since: time.Date(2026, 1, 2, 3, 4, 5, 6, zone),
			}}}},
		},
		last: &inner{
			at:    time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
			since: map[key]time.Duration{{"b", 2}: time.Second, {"a", 9}: 1},
			names: map[string]inner{"x": {at: time.Unix(5, 0).UTC()}},
		},
		events: []event{ended{fmt.Errorf("no reply: %w", cluster.ErrUnknown)}, nil},
		list:   []string{}, pair: [2]bool{false, true}, ratio: math.Inf(-1), data: []byte{0xff, 1}, small: 200, unknown: json.RawMessage(`{"a":1}`),
	}
}

func TestValuesAreTheSameAfterDecoding(t *testing.T) {
	in := sample()
	text := Encode(&in)
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	var out core
	if err := Decode(text, &out, TypesOf(ended{})); err != nil {
		t.Fatal(err)
	}
	if again := Encode(&out); !bytes.Equal(again, text) {
		t.Errorf("encoded again:\n%s\nbefore:\n%s", again, text)
	}
	if out.last.since[key{"a", 9}] != 1 || !out.last.names["x"].at.Equal(time.Unix(5, 0)) || out.list == nil || !math.IsInf(out.ratio, -1) {
		t.Errorf("decoded %+v", out)
	}
	if zoned := out.snap.Members[0].Node.Record.Since; zoned.Format(time.RFC3339) != "2026-01-02T03:04:05+01:00" {
		t.Errorf("the zone is lost: %s", zoned)
	}
}

// What the core does depends on the errors that it was given.
func TestErrorsHaveTheSameMeaningAfterDecoding(t *testing.T) {
	refusal := &cluster.TxError{Index: 3, Op: cluster.Op{Path: "/a"}, Err: cluster.ErrBadVersion}
	for _, err := range []error{cluster.ErrUnknown, refusal, fmt.Errorf("znode: %w", cluster.ErrNeverWritten), &cluster.NewerVersionError{Path: "/p", Version: 2}, errors.New("plain")} {
		var out ended
		if failed := Decode(Encode(ended{err}), &out, nil); failed != nil {
			t.Fatal(failed)
		}
		if out.Err.Error() != err.Error() {
			t.Errorf("text %q, want %q", out.Err, err)
		}
		for name, sentinel := range sentinels {
			if errors.Is(out.Err, sentinel) != errors.Is(err, sentinel) {
				t.Errorf("%v: errors.Is %s is %t", err, name, errors.Is(out.Err, sentinel))
			}
		}
		var got, want *cluster.TxError
		if errors.As(out.Err, &got) != errors.As(err, &want) || got != nil && got.Index != want.Index {
			t.Errorf("%v: errors.As a TxError: %v", err, got)
		}
		var newer, original *cluster.NewerVersionError
		if errors.As(out.Err, &newer) != errors.As(err, &original) || newer != nil && *newer != *original {
			t.Errorf("%v: errors.As a NewerVersionError: %v", err, newer)
		}
	}
}

// A decoder overwrites what a pointer points to, because several parts of the core may point to it.
func TestPointersKeepTheirTarget(t *testing.T) {
	target := &inner{at: time.Now()}
	c := core{last: target}
	if err := Decode([]byte(`{"last":{"at":"2026-01-02T03:04:05Z"}}`), &c, nil); err != nil {
		t.Fatal(err)
	}
	if c.last != target || target.at.Year() != 2026 || target.since != nil {
		t.Errorf("decoded into %+v, not %+v", c.last, target)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{
		``, `{`, `{} {}`, `[]`, `{"no such field":1}`, `{"list":5}`, `{"pair":[true]}`, `{"small":256}`, `{"snap":{"At":"soon"}}`,
		`{"events":[{"type":"other","value":{}}]}`, `{"last":{"since":[[{}]]}}`, `{"last":{"names":5}}`, `{"ratio":true}`, `{"events":[3]}`,
	} {
		if err := Decode([]byte(text), new(core), TypesOf(ended{})); err == nil {
			t.Errorf("%s was decoded", text)
		}
	}
	if err := Decode([]byte(`{}`), core{}, nil); err == nil {
		t.Error("decoded into a value that is no pointer")
	}
}

func FuzzDecode(f *testing.F) {
	in := sample()
	f.Add(Encode(&in))
	f.Add([]byte(`{"events":[{"type":"ended","value":{"Err":{"Text":"x","Is":{"unknown":true}}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second core
		if Decode(data, &first, TypesOf(ended{})) != nil {
			return
		}
		text := Encode(&first)
		if err := Decode(text, &second, TypesOf(ended{})); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !bytes.Equal(Encode(&second), text) {
			t.Fatalf("%s became %s", text, Encode(&second))
		}
	})
}
