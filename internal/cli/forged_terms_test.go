package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
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

// startedTerms returns the terms with which children were started, in order.
func (f *fleet) startedTerms() []int64 {
	f.t.Helper()
	var terms []int64
	for _, tenure := range ledger(f.t, f.ledgerFile()) {
		term, err := strconv.ParseInt(tenure.term, 10, 64)
		if err != nil {
			f.t.Fatal(err)
		}
		terms = append(terms, term)
	}
	return terms
}

// forgedTerms returns terms around every limit of a term. now is the server's time at which the record is written.
func forgedTerms(now int64) map[string]int64 {
	const margin = 3600 // seconds that may pass until the record is written
	terms := map[string]int64{
		"the last integer of a double":     1<<53 - 1,
		"the one before":                   1<<53 - 2,
		"beyond the integers of a double":  1 << 53,
		"the last of all":                  math.MaxInt64,
		"zero":                             0,
		"negative":                         -1,
		"the first of all":                 math.MinInt64,
		"just above what is handed out":    now + cluster.TermHeadroom + 10,
		"above what a fence is believed":   now + cluster.TermHeadroom + cluster.TermSlack + margin,
		"nearly the last that is believed": now + cluster.TermHeadroom - margin,
	}
	return terms
}

// Writing an impossible term into an otherwise valid record does not stop a group: no child gets that term, and the next
// terms continue from the real ones.
func TestForgedTermsEndNoGroup(t *testing.T) {
	t.Parallel()
	for name, term := range forgedTerms(time.Now().Unix()) {
		for _, znode := range []string{"elected", "leader", "current"} {
			t.Run(znode+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				f.join("a", "b")
				before := f.leadership("a leadership").Elected.Record.Term
				f.waitForWork("a")
				f.forge(f.znode(znode), term)
				f.eventually("another leadership, or the same", func() bool {
					s := f.snapshot()
					return s.Ready() && s.Current.Readable() && (znode == "current" || s.Elected.Record.Term > before)
				}, f.table)
				syscall.Kill(f.daemon(f.leadership("a leader").Elected.Record.Node), syscall.SIGKILL)
				f.until("both are back", func(g status.Group) bool { return len(g.Members) == 2 && g.State == string(cluster.CurrentReady) })
				after := f.leadership("a leadership after the next failure").Elected.Record.Term
				limit := time.Now().Unix() + cluster.TermHeadroom
				if after <= before || after > limit {
					t.Errorf("term %d, then %d; the limit is %d", before, after, limit)
				}
				last := int64(0)
				for _, token := range f.startedTerms() {
					if token < last || token > limit {
						t.Errorf("a child was given term %d after %d; the limit is %d", token, last, limit)
					}
					last = token
				}
				for id, p := range f.daemons {
					if n := strings.Count(p.output(), "msg=electing"); n > 40 {
						t.Errorf("%s elects %d times", id, n)
					}
				}
				f.checkInvariants()
			})
		}
	}
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
	f.daemons["a"].signal(syscall.SIGTERM)
	f.exit("a")
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
	if limit := time.Now().Unix() + 100; after < began || after > limit {
		t.Errorf("term %d, not between %d and %d", after, began, limit)
	}
	f.checkInvariants()
}
