package testhelper

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated parts of the documentation")

// CheckDocument fails the test if the part of a document between the markers differs from text. With -update it writes
// text there instead.
func CheckDocument(t *testing.T, document, text string) {
	t.Helper()
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- reference:begin -->\n", "<!-- reference:end -->"
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no markers for the generated part", document)
	case old == text:
	case !*update:
		t.Fatalf("%s is out of date: run 'go test -update' in this package", document)
	default:
		if err := os.WriteFile(document, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
