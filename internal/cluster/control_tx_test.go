package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestControlIsWrittenByItsVersion(t *testing.T) {
	p := Paths{Root: "/c"}
	read := Stored[Control]{Exists: true, Stat: Stat{Version: 6}}
	const alive = "check /c/election/n1-0000000000000001-n_0000000001@-1"
	for name, c := range map[string]struct {
		self string
		read Stored[Control]
		want []string
	}{
		"an operator's first":  {"", Stored[Control]{Stat: Stat{Version: 9}}, []string{"create /c/control@0"}},
		"an operator's next":   {"", read, []string{"set /c/control@6"}},
		"an elector's first":   {"n1-0000000000000001-n_0000000001", Stored[Control]{}, []string{alive, "create /c/control@0"}},
		"an elector's further": {"n1-0000000000000001-n_0000000001", read, []string{alive, "set /c/control@6"}},
	} {
		ops := p.ControlTx(c.self, c.read, Control{Last: 42})
		var got []string
		for _, op := range ops {
			got = append(got, fmt.Sprintf("%s %s@%d", op.Kind, op.Path, op.Version))
			if op.Ephemeral || op.Sequential {
				t.Errorf("%s: is ephemeral: %+v", name, op)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if s := ReadStored[Control]("/c/control", ops[len(ops)-1].Data, Stat{}, true); s.Err != nil || s.Record.Last != 42 {
			t.Errorf("%s: writes %s", name, ops[len(ops)-1].Data)
		}
	}
}

func TestElectedKeepsItsCircumstances(t *testing.T) {
	for name, c := range map[string]Circumstances{
		"none": {}, "all": {Cause: CauseFailure, Node: "a", Site: "dc1", Failed: []string{"dc1", "dc2"}}, "only failures": {Failed: []string{"dc1"}},
	} {
		e := Elected{Term: 7, Circumstances: c}
		data := Encode(&e)
		if has := strings.Contains(string(data), `"circumstances"`); has != (name != "none") {
			t.Errorf("%s: %s", name, data)
		}
		s := ReadStored[Elected]("/x", data, Stat{}, true)
		got := s.Record.Circumstances
		if s.Err != nil || got.Cause != c.Cause || got.Node != c.Node || got.Site != c.Site || !slices.Equal(got.Failed, c.Failed) {
			t.Errorf("%s: %v, read %+v", name, s.Err, got)
		}
		if len(s.Record.Unknown) != 0 {
			t.Errorf("%s: does not know its own fields %v", name, s.Record.Unknown)
		}
	}
}
