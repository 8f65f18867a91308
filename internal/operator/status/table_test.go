package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// The table of the members fits 80 columns. Health and eligibility are told apart, and each reason is shown once; the wide table
// has all of it in columns.
func TestNarrowTable(t *testing.T) {
	s := ready(snapshot())
	s.Elected.Record.Exclusions = nil
	s.Members[0].Node.Record.Unhealthy = "health.exec df: exit status 1"
	s.Control = cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{Cordons: []cluster.Cordon{{Request: request(1, time.Now(), 0, 0), Node: "a"}}}}
	g := Of("c", "/c", s)
	_, members, _ := strings.Cut(g.Table(), "\n\n")
	for line := range strings.SplitSeq(members, "\n") {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{"HEALTH     ELIGIBLE\n", "leader   ok         no: cordoned\n", "elector  unhealthy  no: unhealthy\n", "b is unhealthy: health.exec df: exit status 1\n"} {
		if !strings.Contains(members, want) {
			t.Errorf("no %q in\n%s", want, members)
		}
	}
	for _, reason := range []string{"exit status 1", "new kernel"} {
		if n := strings.Count(g.Table(), reason); n != 1 {
			t.Errorf("%q is shown %d times:\n%s", reason, n, g.Table())
		}
	}
	for _, want := range []string{"VERDICT OF THE LAST ELECTION", "no: cordoned by ann@host: new kernel", "no: unhealthy: health.exec df: exit status 1"} {
		if !strings.Contains(g.WideTable(), want) {
			t.Errorf("no %q in\n%s", want, g.WideTable())
		}
	}
}

func TestTimesHaveZoneAndAge(t *testing.T) {
	now := time.Now().Add(-3 * time.Hour)
	if got := since(&now); !strings.HasSuffix(got, now.Local().Format(" MST")+", 3h0m ago") {
		t.Error(got)
	}
}

// Text in records is unchanged in the JSON, without control sequences for a terminal.
func TestPrintableJSONLosesNothing(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ä, 漢, 😀":               `"plain, ä, 漢, 😀"`,
		"a\u202egnp.exe\u2066\u200f":   `"a\u202egnp.exe\u2066\u200f"`,
		"\u009b2J\u0085\u007f":         `"\u009b2J\u0085\u007f"`,
		"\x1b[2J\n":                    `"\u001b[2J\n"`,
		"\U000e0001\u200b\ufeff\u00ad": `"\udb40\udc01\u200b\ufeff\u00ad"`,
	} {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(PrintableJSON(data)); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.String())).Draw(t, "values")
		data, err := json.MarshalIndent(values, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		plain := PrintableJSON(data)
		var before, after any
		if json.Unmarshal(data, &before) != nil || json.Unmarshal(plain, &after) != nil {
			t.Fatalf("%s is no JSON", plain)
		}
		one, _ := json.Marshal(before)
		other, _ := json.Marshal(after)
		if string(one) != string(other) {
			t.Fatalf("%s became %s", one, other)
		}
		for _, r := range string(plain) {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				t.Fatalf("%U is in %q", r, plain)
			}
		}
	})
}
