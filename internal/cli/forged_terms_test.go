package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

var termInRecord = regexp.MustCompile(`"term":\d+`)

// forge replaces the term of a record.
func (f *fleet) forge(path string, term int64) {
	f.t.Helper()
	data, _, err := f.session.Get(f.t.Context(), path, false)
	if err != nil {
		f.t.Fatal(err)
	}
	first := true
	forged := termInRecord.ReplaceAllStringFunc(string(data), func(old string) string {
		if !first {
			return old
		}
		first = false
		return fmt.Sprintf(`"term":%d`, term)
	})
	f.write(overwrite(path, forged))
}

// Writing a decision again unchanged ends the leadership, but does not keep the only daemon from being elected again.
func TestADecisionWrittenAgainBlocksNoElection(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	before := f.leadership("a leadership").Elected.Record.Term
	data, _, err := f.session.Get(t.Context(), f.paths.Elected(), false)
	if err != nil {
		t.Fatal(err)
	}
	f.write(overwrite(f.paths.Elected(), string(data)))
	f.eventually("a leads again", func() bool { s := f.snapshot(); return s.Ready() && s.Elected.Record.Term > before }, f.table)
	f.checkInvariants()
}

// All terms are forged while no daemon runs, so that no daemon knows the real ones: repair names the records, and terms start
// again from the Unix time in seconds.
func TestForgedTermsWithoutDaemons(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	f.leadership("a leadership")
	f.stop("a")
	f.forge(f.paths.Elected(), 1<<53-1)
	f.forge(f.paths.Leader(), 1<<53-1)
	if out, err := f.run("repair"); err != nil || strings.Count(out, "the limit for the time of the record") != 2 || strings.Count(out, "repaired by the elector") != 2 {
		t.Errorf("%v: %s", err, out)
	}
	if out, _ := f.run("status"); strings.Contains(out, "term 9007199254740991)") || !strings.Contains(out, "Leader   none") {
		t.Errorf("status: %s", out)
	}
	began := time.Now().Unix()
	f.start("a")
	after := f.leadership("a leadership again").Elected.Record.Term
	if limit := time.Now().Unix() + 200; after < began || after > limit {
		t.Errorf("term %d, not between %d and %d", after, began, limit)
	}
	f.checkInvariants()
}
