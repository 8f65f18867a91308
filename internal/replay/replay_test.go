package replay

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/recorder"
	"zkelectd/internal/transition"
)

const boot = "3f1e"

// host records one member of a group, whose machine runs as in a daemon.
type host struct {
	t      *testing.T
	source *recorder.Source
	rec    *recorder.Recorder
	dir    string
	paths  cluster.Paths
	self   cluster.Incarnation
	wall   time.Time
	// written is when the servers write the decisions of lead.
	written time.Time
}

var budget, _ = cluster.NewBudget(6*time.Second, time.Second)

func newHost(t *testing.T, dir, id, bootID string) *host {
	t.Helper()
	h := &host{t: t, dir: dir, paths: cluster.Paths{Root: "/g"}, self: cluster.Incarnation{ID: id, Name: id + "-n_0000000001"}}
	h.rec = recorder.New(recorder.Options{Dir: dir, Size: recorder.MinSize, Node: id, Version: "v1", Boot: bootID, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	h.wall = time.Unix(1, 0).UTC()
	machine := transition.New(transition.Options{Paths: h.paths, Self: h.self, Budget: budget, Wall: func() time.Time { return h.wall }})
	h.source = h.rec.NewSource(recorder.About{Group: "g", Root: "/g", Node: id, Incarnation: h.self.Name, Budget: budget}, recorder.Core{Machine: machine})
	h.step(0, transition.Tick{})
	return h
}

func (h *host) step(at time.Duration, ev transition.Event) {
	h.t.Helper()
	h.source.Step(at, h.wall, ev)
}

// snapshot returns what h reads after it was elected in a term, by the transaction id.
func (h *host) snapshot(at time.Duration, term, id int64) cluster.Snapshot {
	return cluster.Snapshot{
		At: at, Self: h.self, Session: 7, Leadership: true,
		Elected: cluster.Stored[cluster.Elected]{Exists: true, Stat: cluster.Stat{Modified: id, Time: h.written}, Record: cluster.Elected{Term: term, Node: h.self.ID, Incarnation: h.self.Name}},
		Fence:   cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Term: term - 1, State: cluster.FenceReleased}},
	}
}

// lead makes the machine acquire and start its work at a time.
func (h *host) lead(at time.Duration, term, id int64) {
	h.t.Helper()
	h.step(at, transition.Saw{Snapshot: h.snapshot(at, term, id)})
	h.step(at+1, transition.TxDone{Tx: transition.TxAcquire, Results: make([]cluster.Result, 8)})
	h.step(at+2, transition.HookDone{})
	h.step(at+3, transition.ChildStarted{})
	h.step(at+4, transition.ChildReady{})
	h.step(at+5, transition.TxDone{Tx: transition.TxReady, Results: make([]cluster.Result, 8)})
}

// stop makes the machine release.
func (h *host) stop(at time.Duration) {
	h.t.Helper()
	h.step(at, transition.Quit{Reason: "test"})
	h.step(at+1, transition.ChildDead{Status: "exited"})
	h.step(at+2, transition.HookDone{})
}

func (h *host) close() { h.rec.Close(time.Minute) }

// report verifies what is in the directories.
func report(t *testing.T, dirs ...string) Report {
	t.Helper()
	v := Verifier{Version: "v2"}
	for _, dir := range dirs {
		files, err := recorder.Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.AddRecording(files); err != nil {
			t.Fatal(err)
		}
	}
	return v.Report()
}

// violated returns the names of the checks that were violated, and logs why.
func violated(t *testing.T, r Report) string {
	t.Helper()
	var names []string
	for _, c := range r.Checks {
		if len(c.Violations) > 0 {
			names = append(names, c.Name)
			t.Logf("%s: %s", c.Name, strings.Join(c.Violations, "\n"))
		}
	}
	return strings.Join(names, "; ")
}

func dirs(t *testing.T) (a, b string) {
	dir := t.TempDir()
	return filepath.Join(dir, "a"), filepath.Join(dir, "b")
}

func TestAnOrderlyHandoverIsOK(t *testing.T) {
	first, second := dirs(t)
	a := newHost(t, first, "a", boot)
	a.lead(time.Second, 5, 100)
	a.stop(2 * time.Second)
	a.close()
	b := newHost(t, second, "b", boot)
	b.lead(3*time.Second, 6, 200)
	b.stop(4 * time.Second)
	b.close()
	r := report(t, first, second)
	if !r.OK() || len(r.Gaps) > 0 {
		t.Errorf("violated: %s; gaps: %q", violated(t, r), r.Gaps)
	}
	for _, c := range r.Checks {
		if strings.Contains(c.Checked, ": 0,") || len(c.Notes) > 0 {
			t.Errorf("%s: checked %s, notes: %q", c.Name, c.Checked, c.Notes)
		}
	}
}

// Each of these recordings has one violation, and the check that it belongs to must notice it.
func TestViolationsAreNoticed(t *testing.T) {
	t.Run("overlap", func(t *testing.T) {
		first, second := dirs(t)
		a, b := newHost(t, first, "a", boot), newHost(t, second, "b", boot)
		a.lead(time.Second, 5, 100)
		b.lead(1500*time.Millisecond, 6, 200)
		a.stop(2 * time.Second)
		b.stop(3 * time.Second)
		a.close()
		b.close()
		r := report(t, first, second)
		if got := violated(t, r); got != "S1: no two works of a group ran at once" {
			t.Errorf("violated: %q", got)
		}
		if text := r.Checks[0].Violations[0]; !strings.Contains(text, "a in term 5") || !strings.Contains(text, "b in term 6") {
			t.Errorf("it does not name both hosts: %s", text)
		}
	})
	t.Run("overlap on two machines", func(t *testing.T) {
		first, second := dirs(t)
		a, b := newHost(t, first, "a", boot), newHost(t, second, "b", "another boot")
		a.lead(time.Second, 5, 100)
		b.lead(1500*time.Millisecond, 6, 200)
		a.stop(2 * time.Second)
		b.stop(3 * time.Second)
		a.close()
		b.close()
		r := report(t, first, second)
		if got := violated(t, r); got != "" || !strings.Contains(strings.Join(r.Checks[0].Notes, " "), "no clock is common") {
			t.Errorf("violated: %q, notes: %q", got, r.Checks[0].Notes)
		}
	})
	t.Run("terms", func(t *testing.T) {
		first, second := dirs(t)
		a, b := newHost(t, first, "a", boot), newHost(t, second, "b", "another boot")
		a.lead(time.Second, 5, 200)
		a.stop(2 * time.Second)
		b.lead(3*time.Second, 6, 100)
		b.stop(4 * time.Second)
		a.close()
		b.close()
		if got := violated(t, report(t, first, second)); got != "terms only grow" {
			t.Errorf("violated: %q", got)
		}
	})
	t.Run("terms on servers that lost their data", func(t *testing.T) {
		first, second := dirs(t)
		a, b := newHost(t, first, "a", boot), newHost(t, second, "b", "another boot")
		a.written, b.written = time.Unix(1, 0), time.Unix(3, 0)
		a.lead(time.Second, 5, 200)
		a.stop(2 * time.Second)
		b.lead(3*time.Second, 6, 100)
		b.stop(4 * time.Second)
		a.close()
		b.close()
		r := report(t, first, second)
		if got := violated(t, r); got != "" || !strings.Contains(fmt.Sprint(r.Checks), "had lost their data") {
			t.Errorf("violated: %q in %+v", got, r.Checks)
		}
	})
	t.Run("one term of two hosts", func(t *testing.T) {
		first, second := dirs(t)
		a, b := newHost(t, first, "a", boot), newHost(t, second, "b", boot)
		a.lead(time.Second, 5, 100)
		a.stop(2 * time.Second)
		b.lead(3*time.Second, 5, 100)
		b.stop(4 * time.Second)
		a.close()
		b.close()
		if got := violated(t, report(t, first, second)); got != "S2: only the elected incarnation held leadership" {
			t.Errorf("violated: %q", got)
		}
	})
	t.Run("a holder that was not elected", func(t *testing.T) {
		first, _ := dirs(t)
		a := newHost(t, first, "a", boot)
		s := a.snapshot(time.Second, 5, 100)
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: 5, Incarnation: "z-0000000000000001-n_0000000009"}}
		a.step(time.Second, transition.Saw{Snapshot: s})
		a.close()
		if got := violated(t, report(t, first)); got != "S2: only the elected incarnation held leadership" {
			t.Errorf("violated: %q", got)
		}
	})
}

// doctor changes the records of a recording before they are verified.
type doctor struct {
	recorder.Visitor
	change func(*recorder.Record) bool // false drops the record
}

func (d doctor) Record(r recorder.Record) {
	r.Data = slices.Clone(r.Data)
	if d.change(&r) {
		d.Visitor.Record(r)
	}
}

// doctored verifies an orderly recording with a change.
func doctored(t *testing.T, change func(*recorder.Record) bool) Report {
	t.Helper()
	dir, _ := dirs(t)
	a := newHost(t, dir, "a", boot)
	a.lead(time.Second, 5, 100)
	a.stop(2 * time.Second)
	a.close()
	files, err := recorder.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	v := Verifier{Version: "v2", groups: make(map[string]*facts)}
	n := &nodeVerifier{v: &v}
	if err := recorder.Read(files, doctor{n, change}); err != nil {
		t.Fatal(err)
	}
	n.end()
	return v.Report()
}

func TestADifferentDecisionIsNoticed(t *testing.T) {
	const want = "the recorded inputs give the same decisions with this binary"
	for name, change := range map[string][2]string{
		"an action":   {`"type":"RunPreStart","value":{"Term":5`, `"type":"RunPreStart","value":{"Term":6`},
		"a deadline":  {`"type":"Lease","value":{"Deadline":"3.7s"}`, `"type":"Lease","value":{"Deadline":"9.9s"}`},
		"an argument": {`"Phase":"preparing"`, `"Phase":"leading"`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := false
			r := doctored(t, func(r *recorder.Record) bool {
				if text := strings.Replace(string(r.Data), change[0], change[1], 1); r.Kind == recorder.KindStep && text != string(r.Data) {
					r.Data, changed = []byte(text), true
				}
				return true
			})
			if got := violated(t, r); !changed || !strings.Contains(got, want) {
				t.Errorf("changed: %t, violated: %q", changed, got)
			}
		})
	}
}

func TestAReleaseBeforeTheEndOfTheWorkIsNoticed(t *testing.T) {
	r := doctored(t, func(r *recorder.Record) bool { return r.Key != "ChildDead" })
	if got := violated(t, r); !strings.Contains(got, "the same decisions") {
		t.Errorf("violated: %q", got)
	}
	tracker := workTracker{deadline: time.Minute}
	release := []transition.Action{transition.Send{Tx: transition.TxRelease}}
	tracker.step(&recorder.Step{Now: 1, Event: transition.Tick{}, Actions: []transition.Action{transition.StartChild{Term: 1}}}, false)
	if _, faults := tracker.step(&recorder.Step{Now: 2, Event: transition.Tick{}, Actions: release}, true); len(faults) != 1 {
		t.Errorf("faults: %q", faults)
	}
	if _, faults := tracker.step(&recorder.Step{Now: 3, Event: transition.ChildDead{}, Actions: release}, false); len(faults) != 0 {
		t.Errorf("after the end: %q", faults)
	}
}

func TestWorkWithoutALeaseIsNoticed(t *testing.T) {
	tracker := workTracker{deadline: time.Second}
	_, faults := tracker.step(&recorder.Step{Now: 2 * time.Second, Event: transition.Tick{}, Actions: []transition.Action{transition.StartChild{Term: 1}}}, false)
	if len(faults) != 1 || !strings.Contains(faults[0], "its lease ended at 1s") {
		t.Errorf("faults: %q", faults)
	}
}

// A recording of another version may have fields that this one does not know.
func TestAnotherVersionIsReported(t *testing.T) {
	r := doctored(t, func(r *recorder.Record) bool {
		if r.Kind == recorder.KindState {
			r.Data = []byte(`{"a field of the future":1}`)
		}
		return true
	})
	if last := r.Checks[len(r.Checks)-1]; len(last.Notes) != 1 || !strings.Contains(last.Notes[0], "recorded by v1, this is v2") || !r.OK() {
		t.Errorf("notes: %q, violated: %q", last.Notes, violated(t, r))
	}
}

func TestAnOpenEndIsReported(t *testing.T) {
	first, second := dirs(t)
	a := newHost(t, first, "a", boot)
	a.lead(time.Second, 5, 100)
	a.close() // it crashes
	b := newHost(t, second, "b", boot)
	b.lead(2*time.Second, 6, 200)
	b.close()
	r := report(t, first, second)
	if notes := strings.Join(r.Checks[0].Notes, "\n"); !r.OK() || !strings.Contains(notes, "the recording of a ends") {
		t.Errorf("violated: %q, notes: %s", violated(t, r), notes)
	}
}

func TestLedgers(t *testing.T) {
	for text, want := range map[string]string{
		"1 a 5 start\n9 a 5 end\n10 b 6 start\n12 b 6 end\n":       "",
		"1 a 5 start\n9 a 5 end\n8 b 6 start\n12 b 6 end\n":        "S1: no two works of a group ran at once",
		"1 a 5 start\n9 a 5 end\n10 b 4 start\n":                   "terms only grow",
		"1 a 5 start r1\n9 a 5 end r1\n10 b 5 start r2\n":          "terms only grow",
		"1 a 5 start r1\n5 a 5 start r2\n9 a 5 beat r1\n10 b torn": "S1: no two works of a group ran at once",
	} {
		l, err := ReadLedger("ledger", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		v := new(Verifier)
		v.AddLedger(l)
		if got := violated(t, v.Report()); got != want {
			t.Errorf("%q: violated: %q", text, got)
		}
	}
	for _, text := range []string{"x\n", "a b 5 start\n", "1 b c start\n"} {
		if _, err := ReadLedger("ledger", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "ledger:1") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
