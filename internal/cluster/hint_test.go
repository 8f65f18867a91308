package cluster

import "testing"

// A hint names the group only if a shell takes the name as it is: the root of a group may have any characters.
func TestHintsNameGroupsThatCanBeTyped(t *testing.T) {
	t.Parallel()
	const alone = "'zkelectd resume'"
	for group, want := range map[string]string{
		"":           alone,
		"ingest":     "'zkelectd resume -g ingest'",
		"ingest/3":   "'zkelectd resume -g ingest/3'",
		"A_b.c-9":    "'zkelectd resume -g A_b.c-9'",
		"two words":  alone,
		"$HOME":      alone,
		"a;reboot":   alone,
		"it's":       alone,
		"a\nb":       alone,
		"ingest\n":   alone,
		"new*/3":     alone,
		"\u00fcber":  alone,
		"a`reboot`b": alone,
	} {
		if got := InGroup(alone, group); got != want {
			t.Errorf("%q: %s, want %s", group, got, want)
		}
	}
}
