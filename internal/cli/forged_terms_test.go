package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
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

// A daemon that is alone goes on, whatever becomes of its records (L1): a decision that is written again unchanged ends its
// leadership, but not its elections, and it restores its registration. If all terms are forged while no daemon runs, so that
// no daemon knows the real ones, repair names the records, and terms start again from the Unix time in seconds.
func TestChangedRecordsOfALoneDaemon(t *testing.T) {
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
	for _, op := range []cluster.Op{remove(f.paths.Node("a")), overwrite(f.paths.Node("a"), "\x00garbage")} {
		f.write(op)
		f.eventually("its record is back", func() bool {
			s := f.snapshot()
			return len(s.Members) == 1 && s.Members[0].Node.Readable()
		}, f.table)
		f.until("a leads", leads("a"))
	}

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
