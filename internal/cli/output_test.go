package cli

import (
	"os"
	"strings"
	"testing"
)

func TestColorsOnTerminals(t *testing.T) {
	const text = "Leader   n1 (site dc1)\nRequest  PAUSED\nn1  dc1\n"
	if got := colorize(new(strings.Builder), text); got != text {
		t.Errorf("to a file: %q", got)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if got, want := colorize(terminal, text), "\x1b[32mLeader   n1 (site dc1)\x1b[0m\n\x1b[33mRequest  PAUSED\x1b[0m\nn1  dc1\n"; got != want {
		t.Errorf("on a terminal: %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := colorize(terminal, text); got != text {
		t.Errorf("with NO_COLOR: %q", got)
	}
}

// Text that others wrote to ZooKeeper must not control the terminal.
func TestControlSequencesAreEscaped(t *testing.T) {
	t.Parallel()
	if got := printableText("a\x1b[31m\nb\x07"); got != "a?[31m\nb?" {
		t.Errorf("printable text: got %q", got)
	}
}
