package status

import (
	"encoding/json"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

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
