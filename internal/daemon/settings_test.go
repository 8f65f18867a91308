package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/config"
)

// After a crash the configuration in force counts, whatever the files say by then, for one group as for many. What
// they say is listed.
func TestRestoredSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	groups := filepath.Join(dir, "groups")
	if err := os.Mkdir(groups, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		before, after      string
		change             func()
		unapplied, pending string
		refusal            string
	}{
		"one group": {
			"node: {id: a}\nzookeeper: {root: /x, servers: [zk:1], session_file: /f}\nchild: {command: [x], containment: keeper}\n",
			"node: {id: b, site: dc1}\nzookeeper: {root: /y, servers: [zk:2], session_file: /g}\nchild: {command: [y], containment: auto}\n", nil,
			"node.site zookeeper.servers", "node.id zookeeper.root zookeeper.session_file child.command child.containment", "",
		},
		"damaged": {"child: {command: [x]}\n", "nod: {id: z}\nzookeeper: 7\n", nil, "", "", "nod: is not a setting"},
		"gone": {
			"child: {command: [x]}\n", "", func() { os.Remove(filepath.Join(dir, "z.yaml")) }, "", "", "cannot be read: no such file",
		},
		"a directory now": {"zookeeper: {root: /x}\nchild: {command: [x]}\n", "groups_dir: " + groups + "\n", nil, "", "", "groups_dir: is"},
		"groups": {
			"node: {id: a}\nzookeeper: {root: /x}\ngroups_dir: " + groups + "\n", "node: {id: b}\nzookeeper: {root: /x}\ngroups_dir: " + groups + "\n",
			func() {
				write("groups/old.yaml", "child: {command: [y]}")
				write("groups/new.yaml", "child: {none: true}")
			},
			"group new group old", "node.id", "",
		},
		"another root of a group": {
			"zookeeper: {root: /x}\ngroups_dir: " + groups + "\n", "zookeeper: {root: /x}\ngroups_dir: " + groups + "\n",
			func() { write("groups/old.yaml", "{zookeeper: {root: /y/old}, child: {command: [x]}}") }, "", "", "a reload cannot move a group",
		},
	} {
		os.Remove(filepath.Join(groups, "new.yaml"))
		write("groups/old.yaml", "child: {command: [x]}")
		from := config.Sources{File: write("z.yaml", c.before)}
		first, err := readSettings(from, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		write("z.yaml", c.after)
		if c.change != nil {
			c.change()
		}
		last := first.bundle(first.host)
		s, err := readSettings(from, last)
		if err != nil || string(s.bundle(s.host)) != string(last) || !s.restored {
			t.Errorf("%s: %v, %+v", name, err, s)
			continue
		}
		if got := strings.Join(s.unapplied, " "); got != c.unapplied {
			t.Errorf("%s: unapplied %s", name, got)
		}
		if got := strings.Join(s.pending, " "); got != c.pending {
			t.Errorf("%s: pending %s", name, got)
		}
		if (s.refusal == nil) != (c.refusal == "") || s.refusal != nil && !strings.Contains(s.refusal.Error(), c.refusal) {
			t.Errorf("%s: %v", name, s.refusal)
		}
	}
	if _, err := readSettings(config.Sources{}, []byte("damaged")); err == nil {
		t.Error("a damaged configuration was accepted")
	}
}
