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

// Forged terms in the history, including the very next ones, suppress none of the real terms.
func TestForgedHistorySuppressesNoTerm(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	last := func() cluster.PastTerm {
		var terms []cluster.PastTerm
		if out, err := f.run("history", "-n", "1", "-o", "json"); err != nil || json.Unmarshal([]byte(out), &terms) != nil || len(terms) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return terms[0]
	}
	now := f.leadership("a leadership").Elected.Record.Term
	f.eventually("the history has it", func() bool {
		s := f.until("a status", func(status.Group) bool { return true })
		return s.Term == now && last().Term == now
	})
	forged := cluster.History{}
	for i := range cluster.MaxHistory {
		forged.Terms = append(forged.Terms, cluster.PastTerm{Term: now + 1 + int64(i), Node: "evil", Outcome: "READY", Reason: "forged"})
	}
	f.write(overwrite(f.paths.History(), string(cluster.EncodeHistory(&forged))))
	for _, to := range []string{"b", "a"} {
		if out, err := f.run("move", "--to", to, "--wait"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		f.eventually("the history has the move to "+to, func() bool {
			l := last()
			return l.Node == to && l.Cause == cluster.CauseMove && l.Term == f.snapshot().Fence.Record.Term
		})
	}
	f.checkInvariants()
}

// The next elector skips thousands of incarnations that no session owns and that are older than all others, by their sequence
// numbers and names.
func TestThousandsOfForgedElectorsAreSkipped(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	const forged = 5000
	for i := 0; i < forged; i += 500 {
		var ops []cluster.Op
		for j := range 500 {
			ops = append(ops, cluster.Op{Kind: cluster.OpCreate, Path: fmt.Sprintf("%s/%04d-0000000000000001-n_0000000000", f.paths.Election(), i+j)})
		}
		f.write(ops...)
	}
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.logged("b", "msg=\"now elector\"")
	f.eventually("there is a leader, and a is back", func() bool {
		s := f.snapshot()
		return s.Ready() && len(s.Members) == forged+2
	}, f.table)
	for id, p := range f.daemons {
		if n := strings.Count(p.output(), "no session owns"); n > 4 {
			t.Errorf("%s logs it %d times", id, n)
		}
	}
	f.checkInvariants()
}

// If the number of the last request is forged, requests are refused with advice, and can be submitted after a repair.
func TestForgedNumbersOfRequests(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{
		"the last of all": "9223372036854775807", "negative": "-1", "the last that is believed": "4503599627370496", "beyond": "4503599627370497",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.join("a", "b")
			record := fmt.Sprintf(`{"v":1,"last":%s}`, last)
			f.write(cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Control(), Data: []byte(record)})
			f.failsWith(f.hint("'zkelectd repair control'")+" empties", "pause", "--reason", "x")
			f.failsWith(f.hint("'zkelectd repair control'")+" empties", "move", "--to", "b")
			if out, err := f.run("repair", "control"); err != nil || !strings.Contains(out, "emptied") {
				t.Fatalf("%v: %s", err, out)
			}
			for _, to := range []string{"b", "a"} {
				if out, err := f.run("move", "--to", to, "--wait"); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				f.until(to+" leads", leads(to))
			}
			if s := f.snapshot(); s.Control.Record.Last != 2 {
				t.Errorf("the last request is %d", s.Control.Record.Last)
			}
			f.checkInvariants()
		})
	}
}

// A request with the longest possible duration, or with an impossible number, is damage: its end would overflow.
func TestForgedRequestsAreDamage(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Control(),
		Data: []byte(`{"v":1,"last":7,"move":{"id":7,"by":"evil","node":"b","for":"2562047h47m16.854775807s","remaining":"2562047h47m16.854775807s","time":"2026-01-01T00:00:00Z"}}`)})
	g := f.until("it is named", func(g status.Group) bool { return len(g.Problems) > 0 })
	if !strings.Contains(g.Problems[0], f.paths.Control()) || !strings.Contains(g.Problems[0], "above the maximum of") {
		t.Errorf("problems: %q", g.Problems)
	}
	f.failsWith("a request can be in force for at most", "pause", "--for", "2000000h")
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.until("there is a leader, and all are back", func(g status.Group) bool { return g.State == string(cluster.CurrentReady) && len(g.Members) == 2 })
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
	f.configure("a", "dc1", 1, fmt.Sprintf("http: {listen: 'unix:%s'}\nlog: {format: json}\n", f.socket("a")))
	f.start("a")
	f.until("a leads", leads("a"))
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
	shown["the log"] = f.daemons["a"].output()
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

// The metrics stay small although an unauthorized client registers 3,000 members, each at another site with a long name.
func TestForgedMembersDoNotFloodTheMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket("a")))
	f.start("a")
	f.until("a leads", leads("a"))
	const forged, batch = 3000, 200
	for i := 0; i < forged; i += batch {
		var ops []cluster.Op
		for j := range batch {
			id := fmt.Sprint("evil", i+j)
			ops = append(ops, f.register(i+j, cluster.Node{ID: id, Site: id + strings.Repeat("z", 700)})...)
		}
		f.write(ops...)
	}
	body := ""
	f.eventually("they are counted", func() bool {
		_, body = f.ask("a", "/metrics")
		return strings.Contains(body, "\nzkelectd_sites_omitted 2937\n")
	})
	if len(body) > 150<<10 || !strings.Contains(body, `site="dc1"} 1`) {
		t.Errorf("%d bytes", len(body))
	}
	f.checkInvariants()
}
