package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
)

// editor makes the commands of the fleet use a shell script as editor; $1 is the file.
func (f *fleet) editor(script string) {
	f.t.Helper()
	path := filepath.Join(f.dir, "editor")
	put(f.t, path, "set -e\n"+script+"\n")
	f.env = []string{"VISUAL=sh " + path, "TMPDIR=" + f.t.TempDir()}
}

// kept returns the content of the file in which an edited text was kept, and checks that a command can use it.
func (f *fleet) kept(out string) string {
	f.t.Helper()
	found := regexp.MustCompile(`the text is kept in (\S+)`).FindStringSubmatch(out)
	if found == nil {
		f.t.Fatalf("no text is kept: %s", out)
	}
	return read(found[1])
}

// With policy.source: group the policy is changed in ZooKeeper alone: no file is behind, neither after a change nor
// after a restart of a daemon, and nothing is published from a file.
func TestPolicyOfTheGroup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.joinWith("policy: {source: group}\n", "a", "b")
	defaults, err := config.Load(config.Sources{})
	if rec := f.snapshot().Policy.Record; err != nil || rec.Revision != 1 || rec.Rules.Digest() != defaults.Rules().Digest() {
		t.Errorf("%v; published: %+v", err, rec)
	}
	f.failsWith("a.yaml has no policy, because policy.source is group: "+strings.TrimSuffix(f.command("'zkelectd policy edit'"), "'"), "policy", "--apply", f.file("a"))
	f.exits(0, "policy", "--apply", f.policyFile("new.yaml", "policy: {type: first, sites: {dc1: 7}}\n"))
	f.stop("b")
	f.configure("b", "dc1", 100, "policy: {source: group}\nhealth: {interval: 7s}\n")
	f.start("b")
	f.until("b is back", func(g status.Group) bool { return len(g.Members) == 2 })
	f.configure("a", "dc1", 99, "policy: {source: group}\n")
	if out := f.reloads("a"); !strings.Contains(out, "node.priority") || strings.Contains(out, "published") || strings.Contains(out, "whole group") {
		t.Errorf("reload: %s", out)
	}
	if rec := f.snapshot().Policy.Record; rec.Revision != 2 || rec.Type != "first" {
		t.Errorf("a daemon has published its defaults: %+v", rec)
	}
	g := f.until("the reload is seen", func(g status.Group) bool { return len(g.Members) == 2 && g.Members[0].Priority == 99 })
	for _, m := range g.Members {
		if m.Drift {
			t.Errorf("the file of %s is said to differ", m.Node)
		}
	}
	if out := f.exits(0, "status"); strings.Contains(out, "Files ") || !strings.Contains(out, "revision 2") {
		t.Errorf("status: %s", out)
	}
	if out, err := f.runAs("a", "doctor"); !strings.Contains(out, "; no configuration has another one") {
		t.Errorf("doctor: %v, %s", err, out)
	}
	out, err := zkelectd("check", "--config", f.file("a"))
	if err != nil || !strings.Contains(out, "policy.source is group") {
		t.Errorf("check: %v, %s", err, out)
	}
	f.hasOneFileWithAPolicy()
	f.checkInvariants()
}

// hasOneFileWithAPolicy: a member with policy.source: files publishes what is changed in its file, and doctor says
// that the members differ. Its file publishes nothing when it no longer has a policy.
func (f *fleet) hasOneFileWithAPolicy() {
	f.t.Helper()
	f.configure("b", "dc1", 100, "policy: {type: first, hysteresis: 50, sites: {dc1: 7}}\nhealth: {interval: 7s}\n")
	if out := f.reloads("b"); strings.Contains(out, "whole group") || !strings.Contains(out, "not published: policy.hysteresis: the file has 50, in force is 20") {
		f.t.Errorf("a file that may be older than the policy in force: %s", out)
	}
	inForce := "policy: {type: first, failback: manual, sites: {dc1: 7}}\n"
	f.configure("b", "dc1", 100, inForce+"health: {interval: 7s}\n")
	if out := f.reloads("b"); strings.Contains(out, "whole group") || strings.Contains(out, "not published") {
		f.t.Errorf("the policy in force is in the file now: %s", out)
	}
	f.configure("b", "dc1", 100, strings.Replace(inForce, "7", "8", 1)+"health: {interval: 7s}\n")
	if out := f.reloads("b"); !strings.Contains(out, "policy.sites: {dc1: 7} -> {dc1: 8}") {
		f.t.Errorf("a change of the file: %s", out)
	}
	f.eventually("doctor says that the members differ", func() bool {
		out, _ := f.runAs("a", "doctor")
		return strings.Contains(out, "policy.source is files on b, and group on a")
	})
	revision := f.snapshot().Policy.Record.Revision
	f.configure("b", "dc1", 100, "policy: {source: group}\nhealth: {interval: 7s}\n")
	if out := f.reloads("b"); !strings.Contains(out, "applied: policy.source\n") || strings.Contains(out, "whole group") || f.snapshot().Policy.Record.Revision != revision {
		f.t.Errorf("a file that leaves the policy to the group: %s", out)
	}
}

// The editor is a script here: nobody is at a terminal.
func TestPolicyEdit(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	revision := func() int64 { return f.snapshot().Policy.Record.Revision }
	for script, want := range map[string]string{
		"true":          "the policy is not changed",
		`echo "#" > $1`: "the text is empty",
		`sed -i 's/hysteresis: 20/hysteresis: 20 # percent/' $1`: "the policy is not changed",
	} {
		f.editor(script)
		if out := f.exits(0, "policy", "edit"); !strings.Contains(out, "nothing is published: "+want) || strings.Contains(out, "kept") {
			t.Errorf("%s: %s", script, out)
		}
	}
	f.editor("exit 3")
	f.exitsWith(statusError, "has failed: exit status 3; $VISUAL and $EDITOR", "policy", "edit")
	f.editor(`sed -i 's/type: priority/type: node-d/' $1`)
	out := f.exits(statusError, "policy", "edit", "--yes")
	if !strings.Contains(out, "the policy is not valid:\n") || !strings.Contains(out, "did you mean node-id?") || !strings.Contains(f.kept(out), "type: node-d\n") {
		t.Errorf("a mistyped value: %s", out)
	}
	change := `grep -q "# How nodes are ranked" $1; sed -i 's/type: priority/type: highest-node-id/' $1`
	f.editor(change)
	out = f.exits(statusRefused, "policy", "edit")
	for _, want := range []string{"policy.type: priority -> highest-node-id\n", "would be in force", "b (dc1) takes over", "confirm it at a terminal, or add --yes"} {
		if !strings.Contains(out, want) {
			t.Errorf("without confirmation: no %q in %s", want, out)
		}
	}
	put(t, filepath.Join(f.dir, "kept.yaml"), f.kept(out))
	f.exits(statusNo, "policy", "--apply", "--dry-run", filepath.Join(f.dir, "kept.yaml"))
	f.editor(change + "; sed -i 's/hysteresis: 20/hysteresis: 30/' $1; env -u VISUAL zkelectd policy --apply " + f.policyFile("other.yaml", "policy: {type: first, failback: immediate}\n") +
		" --zk " + strings.Join(f.servers, ",") + " --root " + f.paths.Root)
	out = f.exits(statusRefused, "policy", "edit", "--yes")
	if !strings.Contains(out, "has published revision 2 since it was read: policy.type: priority -> first\n") || !strings.Contains(f.kept(out), "hysteresis: 30\n") || revision() != 2 {
		t.Errorf("another one is published meanwhile: %s", out)
	}
	f.editor(`sed -i 's/type: first/type: highest-node-id/' $1`)
	out = f.exits(0, "policy", "edit", "--yes")
	if !strings.Contains(out, "revision 3 is in force") || strings.Contains(out, "kept") || revision() != 3 {
		t.Errorf("it is published: %s", out)
	}
	f.until("b leads by the new policy", leads("b"))
	f.checkInvariants()
}

// terminal returns the two ends of a terminal.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, person.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	program = os.NewFile(fd, "terminal")
	t.Cleanup(func() { program.Close() })
	return person, program
}

// At a terminal a text that is not valid is opened again with its errors, until it is valid, or is left as it is.
func TestAnInvalidPolicyIsOpenedAgain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	person, program := terminal(t)
	base, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	edits := func(changes ...[2]string) *policyEdit {
		seen = nil
		e := &policyEdit{base: base, opened: cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Revision: 1, Rules: base.Rules()}}}
		e.in, e.out = program, program
		e.editor = func(file string) error {
			text := read(file)
			seen = append(seen, text)
			change := changes[len(seen)-1]
			put(t, file, strings.Replace(text, change[0], change[1], 1))
			return nil
		}
		return e
	}
	e := edits([2]string{"type: priority", "type: firts"}, [2]string{"hysteresis: 20", "hysteresis: x"}, [2]string{"type: firts", "type: first"}, [2]string{"hysteresis: x", "hysteresis: 9"})
	changed, err := e.edit()
	if err != nil || !changed || e.edited.Policy.Type != "first" || e.edited.Policy.Hysteresis != 9 || len(seen) != 4 {
		t.Fatalf("%t, %v, %+v", changed, err, e.edited.Policy)
	}
	for i, want := range []string{"", "policy.type: \"firts\" is not a policy", "policy.hysteresis: \"x\" is not an integer", "policy.hysteresis: \"x\" is not"} {
		found := regexp.MustCompile(`(?m)^# ERROR: line:(\d+): (.*)`).FindAllStringSubmatch(seen[i], -1)
		if want == "" && len(found) > 0 || want != "" && !strings.Contains(seen[i], want) || len(found) > 2 {
			t.Errorf("%d: %s", i, seen[i])
		}
		for _, f := range found {
			n, _ := strconv.Atoi(f[1])
			if line := strings.Split(seen[i], "\n")[n-1]; !strings.Contains(line, "firts") && !strings.Contains(line, "hysteresis: x") {
				t.Errorf("%q is not on line %s: %q", f[2], f[1], line)
			}
		}
	}
	// An editor that adds a byte order mark, and one that saves the lines of errors in another encoding.
	for first, second := range map[string]string{"\ufeffpolicy: {type: firts}": "policy: {type: first}", "policy: {type: \u00e4}": "# ERROR: \xe4\npolicy: {type: first}"} {
		e, texts := edits(), []string{first, second, "policy: {type: first}"}
		e.editor = func(file string) error {
			seen = append(seen, read(file))
			put(t, file, texts[len(seen)-1])
			return nil
		}
		if changed, err := e.edit(); err != nil || !changed || strings.Contains(seen[1], "\ufeff") {
			t.Errorf("%q: %t, %v, %q", first, changed, err, seen[1:])
		}
	}
	e = edits([2]string{"type: priority", "typ: first"}, [2]string{})
	if _, err := e.edit(); err == nil || !strings.Contains(err.Error(), "did you mean policy.type?") || !strings.Contains(read(e.file), "typ: first\n") {
		t.Errorf("it is left as it is: %v", err)
	}
	if invalid := (config.Errors{}); errors.As(err, &invalid) {
		t.Error("it would be printed as the error of a configuration file")
	}
	for answer, want := range map[string]bool{"y\n": true, "n\n": false, "\n": false} {
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if err := e.ask("Publish this policy?", "--yes"); err == nil != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
