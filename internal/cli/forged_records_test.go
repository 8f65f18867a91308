package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// createMany creates znodes whose names are made from a format with a number.
func (f *fleet) createMany(n int, format string) {
	f.t.Helper()
	for i := 0; i < n; i += 500 {
		var ops []cluster.Op
		for j := range 500 {
			ops = append(ops, cluster.Op{Kind: cluster.OpCreate, Path: fmt.Sprintf(format, i+j)})
		}
		f.write(ops...)
	}
}

// The next elector skips thousands of foreign znodes, and of incarnations that no session owns and that are older than all others, by
// their sequence numbers and names.
func TestThousandsOfForgedElectorsAreSkipped(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	const forged = 5000
	f.createMany(forged, f.paths.Election()+"/foreign-%04d")
	f.waitForWork("a")
	f.submit("move", "--to", "b", "--wait")
	f.logsZnode(f.paths.Election())
	f.createMany(forged, f.paths.Election()+"/%04d-0000000000000001-n_0000000000")
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.logged("b", "msg=\"now elector\"")
	f.eventually("there is a leader, and a is back", func() bool {
		s := f.snapshot()
		return s.Ready() && len(s.Members) == forged+2
	}, f.table)
	for id, p := range f.daemons {
		if n := strings.Count(p.Output(), "no session owns"); n > 4 {
			t.Errorf("%s logs it %d times", id, n)
		}
		if n := strings.Count(p.Output(), "foreign znodes"); n > 10 {
			t.Errorf("%s logs %d times that there are foreign znodes", id, n)
		}
	}
	f.logged("b", "ignoring incarnations that no session owns")
	f.checkInvariants()
}

// controlCharacters are characters that control a terminal or reverse a line: C1, bidirectional, a tag, ASCII control.
const controlCharacters = "x\u009b2J\u0085\u202egnp.exe\u2066\u200f\u061c\U000e0041\x7f\x1b[2J"

// register returns the operations that register a member in the test's own session.
func (f *fleet) register(i int, rec cluster.Node) []cluster.Op {
	return []cluster.Op{
		{Kind: cluster.OpCreate, Path: f.paths.Node(rec.ID), Data: cluster.Encode(&rec), Ephemeral: true},
		{Kind: cluster.OpCreate, Path: fmt.Sprintf("%s/%s-0000000000000001-n_%010d", f.paths.Election(), rec.ID, 1_000_000+i), Data: []byte{}, Ephemeral: true},
	}
}

// No output or answer, whether JSON or a table, contains control characters, and the JSON still has the original text.
func TestOutputEscapesControlCharacters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", fmt.Sprintf("http: {listen: 'unix:%s'}\nlog: {format: json}\n", f.socket("a")))
	f.write(f.register(0, cluster.Node{ID: "evil", Site: controlCharacters, Host: controlCharacters, Ineligible: controlCharacters, Labels: map[string]string{controlCharacters: controlCharacters}})...)
	f.until("the member has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	h := cluster.History{Terms: []cluster.PastTerm{{Term: 7, Node: controlCharacters, Site: controlCharacters, Reason: controlCharacters}}}
	f.write(overwrite(f.paths.History(), string(cluster.EncodeHistory(&h))))
	f.write(overwrite(f.paths.Policy(), `{"v":1,"revision":9,"type":"priority","by":`+string(must(json.Marshal(controlCharacters)))+`}`))
	shown := make(map[string]string)
	for _, args := range []string{"status", "explain", "history", "policy", "whatif --lost a", "status -o json", "explain -o json", "history -o json", "policy -o json", "whatif --lost a -o json", "repair --dry-run"} {
		shown[args], _ = f.run(strings.Fields(args)...)
	}
	for _, path := range []string{"/v1/status", "/v1/group", "/v1/explain", "/v1/history", "/v1/policy", "/metrics", "/"} {
		_, shown[path] = f.ask("a", path)
	}
	shown["the log"] = f.daemons["a"].Output()
	for what, text := range shown {
		for i, r := range text {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				t.Errorf("%s has %U in %q", what, r, text[max(0, i-40):min(len(text), i+40)])
				break
			}
		}
	}
	var g status.Group
	if err := json.Unmarshal([]byte(shown["status -o json"]), &g); err != nil || len(g.Members) != 2 || g.Members[1].Site != controlCharacters {
		t.Errorf("%v: %s", err, shown["status -o json"])
	}
	f.checkInvariants()
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}
