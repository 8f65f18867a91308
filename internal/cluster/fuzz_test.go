package cluster

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// rewritten checks what must hold for every record: a rejected one leaves nothing behind, and one that is read can be
// rewritten and reads the same, fits into a znode, and has no key twice, ignoring case like encoding/json.
func rewritten[T any, R interface {
	*T
	record
}](t *testing.T, data []byte) {
	t.Helper()
	s := ReadStored[T, R]("/c/x", data, Stat{}, true)
	if s.Err != nil {
		if !strings.Contains(s.Err.Error(), "/c/x") {
			t.Errorf("%q: the error names no znode: %v", data, s.Err)
		}
		var none T
		if left, right := Encode(R(&s.Record)), Encode(R(&none)); string(left) != string(right) {
			t.Errorf("%q is rejected, but half decoded: %s", data, left)
		}
		return
	}
	once := Encode(R(&s.Record))
	if len(once) > 2*MaxRecord {
		t.Errorf("%d bytes become %d", len(data), len(once))
	}
	again := ReadStored[T, R]("/c/x", once, Stat{}, true)
	if again.Err != nil {
		t.Fatalf("%q can be read, but not once it is rewritten: %v", data, again.Err)
	}
	if twice := Encode(R(&again.Record)); string(twice) != string(once) {
		t.Errorf("%q is written as %s, then as %s", data, once, twice)
	}
	for key := range keys(t, once) {
		for _, known := range jsonKeys(reflect.TypeFor[T]()) {
			if key != known && strings.EqualFold(key, known) {
				t.Errorf("%s has %q beside %q", once, key, known)
			}
		}
	}
}

func keys(t *testing.T, data []byte) map[string]json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func FuzzRecords(f *testing.F) {
	c := fullControl()
	f.Add(Encode(&c))
	for _, text := range []string{
		`{"v":1,"term":1,"ranking":[{"node":"a","rank":1}],"exclusions":[{"node":"b","for":"1m"}]}`,
		`{"v":1,"id":"a","site":"dc1","priority":7,"labels":{"a":"b"},"latency_ms":0.7,"session_timeout":"6s","since":"2026-05-04T12:00:00Z"}`,
		`{"v":1,"term":7,"node":"n1","state":"READY","owed":"1s","lease_wait":"2s","kill":"1s","revoke_timeout":"5s","color":"red"}`,
		`{"v":1,"last":1,"pause":null,"cordons":[{}],"cleared_strikes":[{"for":"1m","remaining":"-1s"}]}`,
		`{"v":1,"count":8,"per_node":2,"epoch":7,"next":{"count":4,"per_node":4,"x":1},"by":"n1"}`,
		`{"v":1,"nodes":[{"id":"a","site":"dc1","first_seen":"2026-05-04T12:00:00Z","left":{"how":"lost","time":"2026-05-04T12:00:00Z"}},{"left":{}}]}`,
		`{"v":1,"revision":3,"type":"priority","strategies":[{"when":"true","use":"first"}],"sites":{"dc1":2},"Term":9}`,
		`{"v":1,"term":7,"number":"0123456789abcdef","timeout":"5s","by":"n1","roll_call":{"number":"0123456789abcdef","score":9007199254740992,"why":""}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rewritten[Node](t, data)
		rewritten[Elected](t, data)
		rewritten[Fence](t, data)
		rewritten[Current](t, data)
		rewritten[Policy](t, data)
		rewritten[Control](t, data)
		rewritten[Slots](t, data)
		rewritten[Roster](t, data)
		rewritten[RollCall](t, data)
	})
}

func FuzzHistory(f *testing.F) {
	h := History{Terms: []PastTerm{past(1), past(2)}}
	f.Add(EncodeHistory(&h))
	f.Add(packed(f, EncodeHistory(&h)))
	f.Add(packed(f, EncodeHistory(&h))[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := DecodeHistory("/c/x", data)
		if err != nil {
			if !strings.Contains(err.Error(), "/c/x") || len(h.Terms) > 0 {
				t.Errorf("%q: %d terms are left, %v", data, len(h.Terms), err)
			}
			return
		}
		once := EncodeHistory(&h)
		if len(once) > maxHistorySize {
			t.Errorf("%d bytes become %d", len(data), len(once))
		}
		again, err := DecodeHistory("/c/x", once)
		if err != nil {
			t.Fatalf("%q can be read, but not once it is rewritten: %v", data, err)
		}
		if twice := EncodeHistory(&again); string(twice) != string(once) {
			t.Errorf("%q is written as %q, then as %q", data, once, twice)
		}
	})
}

// Every name under election is an incarnation or foreign, and none is lost.
func FuzzIncarnations(f *testing.F) {
	f.Add("a-0000000000000001-n_0000000001\na-0000000000000001-n_0000000002\nfoo\n-0000000000000001-n_0000000003\nb-0000000000000001-n_-2147483648")
	f.Fuzz(func(t *testing.T, text string) {
		names := make(map[string]int)
		for name := range strings.SplitSeq(text, "\n") {
			names[name]++
		}
		in, foreign := ParseIncarnations(strings.Split(text, "\n"))
		for _, i := range in {
			if names[i.Name]--; i.ID == "" || !strings.HasPrefix(i.Name, i.ID+"-") || !strings.Contains(i.Name, sequenceMark) {
				t.Errorf("%q is of %q", i.Name, i.ID)
			}
		}
		for _, name := range foreign {
			names[name]--
		}
		for name, n := range names {
			if n != 0 {
				t.Errorf("%q is in the input %d times more than in the output", name, n)
			}
		}
	})
}

// Whatever is in the roster, what an elector writes in its place can be read, has its members, and does not change again.
func FuzzRoster(f *testing.F) {
	r := Roster{Nodes: []RosterNode{{ID: "b", Site: "dc1"}, {ID: "c", Left: &Left{How: LeftStopped, Incarnation: "c-0000000000000001-n_0000000001"}}}}
	f.Add(Encode(&r), "a", "b")
	f.Add(packed(f, Encode(&r)), "b", "c")
	f.Add([]byte(`{"v":1,"nodes":[{"id":"b"},{"id":"b"},{"id":""},{"id":"\u0000","left":{"how":"x"}}]}`), "a", "")
	f.Fuzz(func(t *testing.T, data []byte, first, second string) {
		read := ReadRoster("/c/roster", data, Stat{}, true)
		if read.Err != nil {
			if !strings.Contains(read.Err.Error(), "/c/roster") || len(read.Record.Nodes) > 0 {
				t.Errorf("%q: %d nodes are left, %v", data, len(read.Record.Nodes), read.Err)
			}
			read.Record = Roster{}
		}
		var members []Member
		for _, id := range []string{first, second} {
			members = append(members, Member{Incarnation: Incarnation{Name: id + sequenceMark + "0000000001", ID: id}})
		}
		next, _ := read.Record.Update(members, rosterStart)
		next.Unknown = nil // it may be as large as a record can be
		again := ReadRoster("/c/roster", EncodeRoster(&next), Stat{}, true)
		if again.Err != nil {
			t.Fatalf("%q becomes unreadable: %v", data, again.Err)
		}
		for _, id := range []string{first, second} {
			if rosterName(id) && !slices.ContainsFunc(again.Record.Nodes, func(n RosterNode) bool { return n.ID == id && n.Left == nil }) {
				if !slices.ContainsFunc(again.Record.Nodes, func(n RosterNode) bool { return n.ID == id && n.Left.Incarnation == id+sequenceMark+"0000000001" }) {
					t.Errorf("%q: %q is missing", data, id)
				}
			}
		}
		if _, changed := again.Record.Update(members, rosterStart.Add(time.Hour)); changed {
			t.Errorf("%q: it changes again", data)
		}
	})
}
