package cluster

import (
	"os/exec"
	"strings"
	"testing"
)

// A command names the group and the node as a reader has to type them in a shell: records, and roots, may have any characters.
func TestCommandsCanBeTypedInAShell(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"ingest":      `'zkelectd forget ingest -g ingest'`,
		"ingest/3":    `'zkelectd forget ingest/3 -g ingest/3'`,
		"A_b.c-9":     `'zkelectd forget A_b.c-9 -g A_b.c-9'`,
		"n1@dc1:+,%":  `'zkelectd forget n1@dc1:+,% -g n1@dc1:+,%'`,
		"über":        `'zkelectd forget über -g über'`,
		"":            `'zkelectd forget '''`,
		"two words":   `'zkelectd forget two\ words -g two\ words'`,
		"$HOME":       `'zkelectd forget \$HOME -g \$HOME'`,
		"a;reboot":    `'zkelectd forget a\;reboot -g a\;reboot'`,
		"it's":        `'zkelectd forget it\'s -g it\'s'`,
		"new*/3":      `'zkelectd forget new\*/3 -g new\*/3'`,
		"a`reboot`b":  "'zkelectd forget a\\`reboot\\`b -g a\\`reboot\\`b'",
		`\"!#~&|<>()`: `'zkelectd forget \\\"\!\#\~\&\|\<\>\(\) -g \\\"\!\#\~\&\|\<\>\(\)'`,
		"-x":          `'zkelectd forget -g -x -- -x'`,
		"a\nb'c\\":    `'zkelectd forget $'a\012b\047c\134' -g $'a\012b\047c\134''`,
	} {
		got := InGroup("'zkelectd forget %s'", name, name)
		if got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
		if strings.Contains(name, "\n") {
			continue // not every sh knows $'…'
		}
		if out, err := exec.Command("sh", "-c", "printf %s "+ShellWord(name)).CombinedOutput(); err != nil || string(out) != name {
			t.Errorf("%q: a shell makes %q of %s (%v)", name, out, ShellWord(name), err)
		}
	}
}

// The values of options are quoted as well, and what begins with a dash is not taken for an option.
func TestCommandsWithOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{InGroup("'zkelectd resume'", ""), "'zkelectd resume'"},
		{InGroup("'zkelectd resume'", "ingest"), "'zkelectd resume -g ingest'"},
		{InGroup("'zkelectd uncordon --site %s'", "g", "dc 1"), `'zkelectd uncordon --site dc\ 1 -g g'`},
		{InGroup("'zkelectd uncordon --site %s'", "g", "-x"), "'zkelectd uncordon --site -x -g g'"},
		{InGroup("'zkelectd slots %s --per-node %s'", "g", 8, 2), "'zkelectd slots 8 --per-node 2 -g g'"},
		{InGroup("'zkelectd exec --root %s -- true'", "g 1", "/jobs"), `'zkelectd exec --root /jobs -g g\ 1 -- true'`},
		{SlotName("g", "3"), "g/3"}, {SlotName("g", ""), "g"}, {SlotName("", "3"), ""},
		{GroupOf("g/3"), "g"}, {GroupOf("g"), "g"}, {NameOf("/zk/g"), "g"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
