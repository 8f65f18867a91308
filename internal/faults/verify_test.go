package faults

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"zkelectd/internal/recorder"
	"zkelectd/internal/replay"
)

// recordings returns the directory of a node's flight recorder.
func (n *node) recordings() string { return n.f.file(n.id + ".recorder") }

// verify stops the fleet and verifies its recordings and ledgers, as 'zkelectd verify' does.
func (f *fleet) verify() replay.Report {
	f.t.Helper()
	f.shutDown()
	v := replay.Verifier{Version: "this test"}
	for _, n := range f.nodes {
		files, err := recorder.Files(n.recordings())
		if err == nil {
			err = v.AddRecording(files)
		}
		if err != nil {
			f.t.Errorf("the recording of %s: %v", n.id, err)
		}
	}
	for _, g := range f.groups {
		l, err := readWorks(g.ledger())
		if err != nil {
			f.t.Error(err)
			continue
		}
		v.AddLedger(l)
	}
	r := v.Report()
	if len(r.Recorded) != len(f.nodes) {
		f.t.Errorf("%d of %d nodes have recorded: %s", len(r.Recorded), len(f.nodes), strings.Join(r.Recorded, "; "))
	}
	return r
}

// readWorks reads a ledger for the verification.
func readWorks(path string) (replay.Ledger, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // the first child may have been stopped before it wrote
		return replay.Ledger{Name: path}, nil
	}
	if err != nil {
		return replay.Ledger{}, err
	}
	defer file.Close()
	return replay.ReadLedger(path, file)
}

// checkRecordings fails the campaign for each violation that the verification finds. Notes and gaps are no failures: killed daemons
// leave them.
func (f *fleet) checkRecordings() {
	f.t.Helper()
	r := f.verify()
	for _, c := range r.Checks {
		f.t.Logf("verify: %s (%s): violations: %d", c.Name, c.Checked, len(c.Violations))
		for _, violation := range c.Violations {
			f.t.Errorf("verify: %s: %s", c.Name, violation)
		}
		for _, note := range c.Notes {
			f.t.Logf("verify: not checked: %s", note)
		}
	}
	for _, recorded := range r.Recorded {
		f.t.Logf("verify: recorded: %s", recorded)
	}
	for _, gap := range r.Gaps {
		f.t.Logf("verify: gap: %s", gap)
	}
}

// mustNoticeOverlap verifies a fleet in which two children have run at once.
func (f *fleet) mustNoticeOverlap() {
	f.t.Helper()
	s1 := f.verify().Checks[0]
	if len(s1.Violations) == 0 {
		f.t.Fatalf("the verification does not notice it: %s (%s)", s1.Name, s1.Checked)
	}
	f.t.Logf("verify: %s", s1.Violations[0])
}
