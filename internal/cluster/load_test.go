package cluster

import "testing"

func TestWithLoads(t *testing.T) {
	one, two := 1.0, 2.0
	member := func(id string, latency *float64) Member {
		return Member{Incarnation: Incarnation{ID: id}, Node: Stored[Node]{Exists: true, Record: Node{ID: id, Latency: latency}}}
	}
	before := []Member{member("a", nil), member("b", &two), member("c", nil)}
	after := WithLoads(before, map[string]Load{"a": {Latency: &one}, "b": {Latency: &one}, "d": {Latency: &one}})
	if got := after[0].Node.Record.Latency; got == nil || *got != 1 {
		t.Errorf("a has %v", got)
	}
	if got := after[1].Node.Record.Latency; got == nil || *got != 2 {
		t.Errorf("b, which publishes its own, has %v", got)
	}
	if after[2].Node.Record.Latency != nil || before[0].Node.Record.Latency != nil {
		t.Error("the latency of c is not known, and the given members must stay as they are")
	}
}

func TestLoads(t *testing.T) {
	if got := Loads("/zkelectd") + " " + Loads("/"); got != "/zkelectd/.load /.load" {
		t.Error(got)
	}
	if s := ReadStored[Load]("/x", []byte(`{"v":1,"leaders":-1}`), Stat{}, true); s.Err == nil {
		t.Error("a negative number of leaders is accepted")
	}
}
