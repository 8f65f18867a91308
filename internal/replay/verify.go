package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/recorder"
)

// Check is the result of one check.
type Check struct {
	Name string `json:"name"`
	// Checked says what was checked.
	Checked string `json:"checked"`
	// Violations are what is wrong; none if the check has passed.
	Violations []string `json:"violations,omitempty"`
	// Notes are what could not be checked.
	Notes []string `json:"notes,omitempty"`
}

// Report is the result of [Verifier.Report].
type Report struct {
	Checks []Check `json:"checks"`
	// Recorded says what the recordings cover, and Gaps what is missing in them.
	Recorded []string `json:"recorded"`
	Gaps     []string `json:"gaps,omitempty"`
}

// OK reports whether no check was violated.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return len(c.Violations) > 0 })
}

// maxFindings bounds how many findings of one kind a report lists.
const maxFindings = 100

// Verifier checks recordings and ledgers of all hosts of a fleet. Version is that of this binary.
type Verifier struct {
	Version string

	groups  map[string]*facts
	works   []*work
	ledgers []Ledger
	faults  []string // work without a lease, RELEASE before the end of the work
	differ  []string // decisions
	unable  []string // what could not be replayed
	gaps    []string
	covered []string
	calls   int
}

// AddLedger adds a ledger.
func (v *Verifier) AddLedger(l Ledger) { v.ledgers = append(v.ledgers, l) }

// AddRecording adds the files of one node.
func (v *Verifier) AddRecording(files []string) error {
	if v.groups == nil {
		v.groups = make(map[string]*facts)
	}
	n := &nodeVerifier{v: v}
	err := recorder.Read(files, n)
	n.end()
	return err
}

// nodeVerifier verifies the recording of one node.
type nodeVerifier struct {
	v       *Verifier
	header  recorder.Header
	first   recorder.Header
	members map[uint64]*verified
	runs    int
	last    time.Duration // of the run
}

// verified is a member whose records are verified.
type verified struct {
	*member
	tracker workTracker
	diverge bool // it has differed, or cannot be replayed: nothing after it can be compared
}

// Run implements [recorder.Visitor].
func (n *nodeVerifier) Run(h recorder.Header) {
	if h.Run != n.header.Run {
		n.members = make(map[uint64]*verified)
		n.runs++
	}
	if n.first.Run == "" {
		n.first = h
	}
	n.header, n.last = h, max(time.Duration(h.At), 0)
}

// Gap implements [recorder.Visitor].
func (n *nodeVerifier) Gap(reason string) {
	n.v.gaps = append(n.v.gaps, fmt.Sprintf("%s: %s (after %s)", n.header.Node, reason, stamp(n.header, n.last)))
}

// Record implements [recorder.Visitor].
func (n *nodeVerifier) Record(r recorder.Record) {
	if r.Kind == recorder.KindMember {
		n.beginMember(r)
		return
	}
	m := n.members[r.Source]
	if m == nil {
		return // its beginning cannot be read, which was reported
	}
	c, err := m.replay(r)
	if err != nil {
		n.unable(m, err)
	} else if r.Kind == recorder.KindState && r.Key == recorder.PartMachine {
		m.tracker.restore(m.machine)
	}
	n.last = max(n.last, c.at)
	n.see(m, c)
	n.compare(m, r, c)
}

// beginMember begins a member, or goes on with it from the recorded state.
func (n *nodeVerifier) beginMember(r recorder.Record) {
	next, err := newMember(r.Data)
	if err != nil {
		delete(n.members, r.Source)
		n.v.unable = append(n.v.unable, fmt.Sprintf("%s: a member cannot be read: %v", n.header.Node, err))
		return
	}
	m := &verified{member: next, tracker: workTracker{about: next.about, header: n.header}}
	if before := n.members[r.Source]; before != nil {
		m.tracker = before.tracker
		m.tracker.header = n.header
	}
	n.members[r.Source] = m
}

// see notes what a record shows of the group.
func (n *nodeVerifier) see(m *verified, c call) {
	group := group(m.about)
	f := n.v.groups[group]
	if f == nil {
		f = newFacts()
		n.v.groups[group] = f
	}
	where := func(at time.Duration) string { return fmt.Sprintf("%s read at %s", n.header.Node, stamp(n.header, at)) }
	if c.snapshot != nil {
		f.see(c.snapshot.SlotState(), where(c.snapshot.At))
	}
	if c.step == nil {
		return
	}
	began, faults := m.tracker.step(c.step, m.machine.Running())
	if began != nil {
		n.v.works = append(n.v.works, began)
	}
	n.v.faults = append(n.v.faults, faults...)
}

// unable notes that a member cannot be replayed from here on.
func (n *nodeVerifier) unable(m *verified, err error) {
	if m.diverge {
		return
	}
	m.diverge = true
	n.v.unable = append(n.v.unable, fmt.Sprintf("%s, %s: from %s on the calls cannot be repeated: %v (recorded by %s, this is %s)",
		n.header.Node, group(m.about), stamp(n.header, n.last), err, n.header.Version, n.v.Version))
}

// compare notes that the core returns something else with this binary.
func (n *nodeVerifier) compare(m *verified, r recorder.Record, c call) {
	if m.diverge {
		return
	}
	if c.step != nil || c.observe != nil || c.decide != nil || c.resize != nil {
		n.v.calls++
	}
	if c.replayed == nil {
		return
	}
	m.diverge = true
	recorded, replayed := difference(c.recorded, c.replayed)
	n.v.differ = append(n.v.differ, fmt.Sprintf("%s, %s: %s at %s (boottime %s), recorded by %s, this is %s:\n    recorded …%s\n    now      …%s",
		n.header.Node, group(m.about), kindName(r), stamp(n.header, c.at), c.at, n.header.Version, n.v.Version, recorded, replayed))
}

// difference returns the parts of two texts around what differs.
func difference(a, b []byte) (string, string) {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	cut := func(s []byte) string {
		text := strings.ToValidUTF8(string(s[max(0, at-60):min(len(s), at+200)]), "")
		return text
	}
	return cut(a), cut(b)
}

// end ends the recording.
func (n *nodeVerifier) end() {
	if n.first.Run == "" {
		return
	}
	n.v.covered = append(n.v.covered, fmt.Sprintf("%s: %s to %s, processes: %d, boot ID %s", n.header.Node, stamp(n.first, time.Duration(n.first.At)), stamp(n.header, n.last),
		n.runs, n.header.Boot))
}

// group names the group of a member, or its slot.
func group(a recorder.About) string {
	if a.Slot == "" {
		return a.Root
	}
	return a.Root + "/slots/" + a.Slot
}

// kindName names the call that a record is of.
func kindName(r recorder.Record) string {
	switch r.Kind {
	case recorder.KindStep:
		return "the member's reaction to " + r.Key
	case recorder.KindObserve:
		return "the watchdog's findings"
	case recorder.KindDecide:
		return "the elector's decision"
	case recorder.KindResize:
		return "the step of a resize"
	}
	return "a record"
}

// Report returns the results.
func (v *Verifier) Report() Report {
	return Report{
		Checks:   []Check{v.overlapCheck(), v.leaseCheck(), v.holderCheck(), v.termCheck(), v.replayCheck()},
		Recorded: v.covered, Gaps: limit(v.gaps),
	}
}

func limit(all []string) []string {
	if n := len(all) - maxFindings; n > 0 {
		return append(slices.Clone(all[:maxFindings]), fmt.Sprintf("and %d more", n))
	}
	return all
}

func (v *Verifier) overlapCheck() Check {
	certain, possible := overlaps(v.works)
	boots := make(map[string]bool)
	for _, w := range v.works {
		boots[w.header.Boot] = true
	}
	runs := 0
	for _, l := range v.ledgers {
		runs += len(l.Runs)
		certain = append(certain, l.overlaps()...)
	}
	if len(boots) > 1 || boots[""] {
		possible = append(possible, fmt.Sprintf("works on different machines (boot IDs: %d) are compared by their terms and fences only: no clock is common to them", len(boots)))
	}
	return Check{
		Name: "S1: no two works of a group ran at once", Checked: fmt.Sprintf("works in recordings: %d, in ledgers: %d", len(v.works), runs),
		Violations: limit(certain), Notes: limit(possible),
	}
}

func (v *Verifier) leaseCheck() Check {
	return Check{
		Name: "S1: work began under a lease, and had ended before its release", Checked: fmt.Sprintf("works: %d", len(v.works)), Violations: limit(v.faults),
	}
}

func (v *Verifier) holderCheck() Check {
	c := Check{Name: "S2: only the elected incarnation held leadership"}
	checked, unknown := 0, 0
	for _, g := range slices.Sorted(maps.Keys(v.groups)) {
		n, u, faults := v.groups[g].checkHolders(g)
		checked, unknown = checked+n, unknown+u
		c.Violations = append(c.Violations, faults...)
	}
	owner := make(map[string]*work)
	for _, w := range v.works {
		key := fmt.Sprint(w.group, " ", w.term)
		if other := owner[key]; other != nil && other.incarnation != w.incarnation {
			c.Violations = append(c.Violations, fmt.Sprintf("%s: two incarnations worked in term %d:\n    %s\n    %s", w.group, w.term, other, w))
		}
		owner[key] = w
	}
	c.Checked = fmt.Sprintf("terms: %d", checked)
	if unknown > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("no recording shows the decisions of %d of these terms", unknown))
	}
	c.Violations = limit(c.Violations)
	return c
}

func (v *Verifier) termCheck() Check {
	c := Check{Name: "terms only grow"}
	checked, anew := 0, 0
	for _, g := range slices.Sorted(maps.Keys(v.groups)) {
		n, a, faults := v.groups[g].checkTerms(g)
		checked, anew = checked+n, anew+a
		c.Violations = append(c.Violations, faults...)
	}
	for _, l := range v.ledgers {
		c.Violations = append(c.Violations, l.checkTerms()...)
	}
	c.Violations = append(c.Violations, workTerms(v.works)...)
	c.Checked = fmt.Sprintf("decisions: %d, works: %d, ledgers: %d", checked, len(v.works), len(v.ledgers))
	if anew > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d decisions were not compared with the one before: ZooKeeper's servers had lost their data, or their clocks were set back", anew))
	}
	c.Violations = limit(c.Violations)
	return c
}

// workTerms finds works on one machine whose term is lower than that of work before them.
func workTerms(works []*work) (faults []string) {
	last := make(map[string]*work)
	for _, w := range works { // sorted by overlaps
		key := w.group + " " + w.header.Boot
		if before := last[key]; before != nil && w.header.Boot != "" && w.term < before.term {
			faults = append(faults, fmt.Sprintf("%s: term %d follows term %d:\n    %s\n    %s", w.group, w.term, before.term, before, w))
		}
		last[key] = w
	}
	return faults
}

func (v *Verifier) replayCheck() Check {
	return Check{
		Name: "the recorded inputs give the same decisions with this binary", Checked: fmt.Sprintf("calls of the core: %d", v.calls),
		Violations: limit(v.differ), Notes: limit(v.unable),
	}
}
