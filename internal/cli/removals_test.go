package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
)

// Files of groups that are gone end no group, neither at a reload nor at a restart after a crash, unless an operator says so.
func TestAbsenceOfGroupFilesIsNotRemoval(t *testing.T) {
	t.Parallel()
	base := fmt.Sprintf("/estates/e%d", groups.Add(1))
	f := newFleetAt(t, base+"/a")
	dir := filepath.Join(f.dir, "groups")
	write := func(file, text string) {
		t.Helper()
		put(t, file, text)
	}
	mkdir(t, dir)
	write(f.file("n1"), fmt.Sprintf("node: {id: n1}\nzookeeper: {servers: [%s], root: %s, session_timeout: 4s}\ngroups_dir: %s\n", strings.Join(f.servers, ", "), base, dir))
	write(filepath.Join(dir, "a.yaml"), fmt.Sprintf("child: {command: [ledger-child], env: {LEDGER: %s}, stop_timeout: 400ms}\n", f.ledgerFile()))
	for _, name := range []string{"b", "c"} {
		write(filepath.Join(dir, name+".yaml"), "child: {none: true}\n")
	}
	f.start("n1")
	instance := func(group string) string { // of the member; empty if there is none
		path := cluster.Paths{Root: base + "/" + group}.Node("n1")
		data, stat, err := f.session.Get(t.Context(), path, false)
		if err != nil {
			return ""
		}
		return cluster.ReadStored[cluster.Node](path, data, stat, true).Record.Instance
	}
	last := make(map[string]string)
	joined := func() { // as new members
		t.Helper()
		for _, name := range []string{"a", "b", "c"} {
			f.eventually("a new member of "+name, func() bool {
				now := instance(name)
				if now == "" || now == last[name] {
					return false
				}
				last[name] = now
				return true
			})
		}
		f.until("a leads", leads("n1"))
	}
	joined()
	reload := func(fails bool, want string, flags ...string) {
		t.Helper()
		out, err := zkelectd(append([]string{"reload", "--config", f.file("n1")}, flags...)...)
		if (err != nil) != fails || !strings.Contains(out, want) {
			t.Errorf("%v: %v, want %q:\n%s", flags, err, want, out)
		}
	}
	reload(false, "n1 has reloaded its configuration")

	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	reload(true, dir+": cannot be read: no such file or directory; if the groups are to end")
	syscall.Kill(f.daemon("n1"), syscall.SIGKILL)
	joined()
	f.logged("n1", `runs_with="the last good configuration"`)

	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "b.yaml"), "")
	reload(true, "b.yaml: is empty")
	syscall.Kill(f.daemon("n1"), syscall.SIGKILL)
	joined()

	for _, name := range []string{"b", "c"} {
		if err := os.Remove(filepath.Join(dir, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	reload(true, "the files of 2 of 3 groups are gone: b, c")
	for name, now := range last {
		if instance(name) != now {
			t.Errorf("the member of %s is another one", name)
		}
	}
	term := f.until("a leads", leads("n1")).Term
	reload(false, "b: removed; this host leaves it once its work has ended\nc: removed; this host leaves it once its work has ended\nn1 has reloaded its configuration\n", "--allow-removals")
	if g := f.until("a leads", leads("n1")); g.Term != term {
		t.Errorf("a has changed leaders:\n%s", g.Table())
	}
	f.eventually("n1 has left b and c", func() bool { return instance("b")+instance("c") == "" })
	if instance("a") != last["a"] {
		t.Error("another group than b and c was removed")
	}
}
