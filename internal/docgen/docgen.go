// Package docgen keeps the generated part of a document equal to what the code says. It is for tests.
package docgen

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated parts of the documentation")

// Check fails the test if what stands between the markers of a document is not text; with -update it writes it there.
func Check(t *testing.T, document, text string) {
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
		t.Fatalf("%s has no markers for the reference", document)
	case old == text:
	case !*update:
		t.Fatalf("%s is out of date: run 'go test -update' in this package", document)
	default:
		if err := os.WriteFile(document, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
