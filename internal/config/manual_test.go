package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The manual page has all settings, and no text that man takes for a command.
func TestManualPage(t *testing.T) {
	t.Parallel()
	page := ManualPage(time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC))
	for _, k := range Keys() {
		if want := "\n.TP\n\\fB" + roff(k.Name) + "\\fP (" + roff(string(k.Kind)); strings.Count(page, want) != 1 {
			t.Errorf("%s is there %d times", k.Name, strings.Count(page, want))
		}
	}
	macros := []string{".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}
	for i, line := range strings.Split(page, "\n") {
		word, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, ".") && !slices.Contains(macros, word) || strings.HasPrefix(line, "'") {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
	if strings.Contains(page, "default: "+roff(hostName())) {
		t.Error("the page has the name of this host")
	}
	if got, want := roff(".a\\b`c`-d\n'e\n\nf\n.g"), `\&.a\ebc\-d`+"\n"+`\&'e`+"\n.PP\nf\n"+`\&.g`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
