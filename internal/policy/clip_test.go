package policy

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

// However long the members' records are, the decision about them can be read again.
func TestVerdictsOfVerboseMembersFitARecord(t *testing.T) {
	for _, text := range []string{"x", "<", "\x01", "é", "\xff", `"`} {
		var r Ranking
		for i := range maxVerdicts {
			m := cluster.Member{Incarnation: cluster.Incarnation{ID: fmt.Sprintf("n%d", i), Name: fmt.Sprintf("n%d-0000000000000001-n_%010d", i, i)}}
			m.Node.Record.Site = strings.Repeat(text, 100_000)
			r.Entries = append(r.Entries, Entry{Member: &m, Scores: []Score{{Words: m.Node.Record.Site}}})
		}
		verdicts, omitted := r.Verdicts()
		if data := cluster.Encode(&cluster.Elected{Ranking: verdicts}); len(data) > cluster.MaxRecord || len(verdicts) != maxVerdicts || omitted != 0 {
			t.Errorf("%q: %d bytes, %d omitted", text, len(data), omitted)
		}
		if s := verdicts[0].Site; text != "\xff" && !utf8.ValidString(s) || !strings.HasSuffix(s, "…") {
			t.Errorf("%q became %q", text, s)
		}
	}
	if short := "site dc1 has 200 against site dc2 has 100"; clip(short) != short {
		t.Error(clip(short))
	}
}
