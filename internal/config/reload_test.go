package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// summary returns what a reload changes, in one line.
func summary(r Reloaded) string {
	return fmt.Sprintf("added %v changed %v removed %v refused %v", r.Added, r.Changed, r.Removed, slices.Sorted(maps.Keys(r.Refused)))
}

const nothing = "added [] changed [] removed [] refused []"

// five are the files of five groups.
func five() map[string]string {
	groups := make(map[string]string)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		groups[name] = "child: {command: [" + name + "], env: {A: '1'}}\n"
	}
	return groups
}

func (h hostFiles) reload(running Host, allowRemovals bool) Reloaded {
	h.t.Helper()
	r, err := ReloadHost(h.sources(), running, allowRemovals)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func TestReloadAddsChangesAndRemovesGroups(t *testing.T) {
	h := newHost(t, "", five())
	running := h.load()
	if r := h.reload(running, false); summary(r) != nothing {
		t.Fatal(summary(r))
	}
	h.put("new.yaml", "hooks: {on_change: [x]}\n")
	h.put("b.yaml", "child: {command: [b], env: {A: '2'}}\n")
	h.remove("c.yaml")
	r := h.reload(running, false)
	if got := summary(r); got != "added [new] changed [b] removed [c] refused []" || names(r.Host) != "a b d e new" {
		t.Errorf("%s: %s", got, names(r.Host))
	}
	if c := groupOf(t, r.Host, "b"); c.Child.Env["A"] != "2" {
		t.Errorf("b has %v", c.Child.Env)
	}
	if again, err := Unbundle(Bundle(r.Host)); err != nil || names(again) != "a b d e new" {
		t.Errorf("its content: %v, %s", err, names(again))
	}
	if r := h.reload(r.Host, false); summary(r) != nothing {
		t.Errorf("the second time: %s", summary(r))
	}
	// A change of the defaults or of the host concerns the groups that use it; one of the log, none.
	h.setMain("node: {site: dc2}\n")
	if got := summary(h.reload(r.Host, false)); got != "added [] changed [a b d e new] removed [] refused []" {
		t.Errorf("a change of the host: %s", got)
	}
	h.setMain("defaults: {child: {command: [standard]}}\n")
	if got := summary(h.reload(r.Host, false)); got != "added [] changed [new] removed [] refused []" {
		t.Errorf("a change of the defaults: %s", got)
	}
	h.setMain("log: {level: debug}\n")
	if r := h.reload(r.Host, false); summary(r) != nothing || groupOf(t, r.Host, "a").Log.Level != "debug" {
		t.Errorf("a change of the log: %s", summary(r))
	}
}

// One bad file leaves its group as it is, and touches no other.
func TestBadFileLeavesItsGroup(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(h hostFiles)
		want   string
	}{
		"not YAML":            {func(h hostFiles) { h.put("b.yaml", "child: [") }, "b.yaml: is not YAML"},
		"an unknown key":      {func(h hostFiles) { h.put("b.yaml", "chidl: {}") }, "b.yaml:1: chidl: is not a setting; did you mean child?"},
		"emptied":             {func(h hostFiles) { h.put("b.yaml", "") }, "b.yaml: is empty"},
		"not trusted":         {func(h hostFiles) { os.Chmod(h.path("b.yaml"), 0o666) }, "b.yaml: can be changed by others"},
		"a second file":       {func(h hostFiles) { h.put("b.yml", "{}") }, "b.yaml: is one of two files for the group b"},
		"another name":        {func(h hostFiles) { rename(t, h.path("b.yaml"), h.path("b.yml")) }, "b.yml: the name of a group file ends in .yaml"},
		"it vanishes":         {func(h hostFiles) { h.remove("b.yaml"); os.Symlink("gone", h.path("b.yaml")) }, "b.yaml: has vanished since the directory was listed"},
		"another root":        {func(h hostFiles) { h.put("b.yaml", "zookeeper: {root: /elsewhere}") }, `b.yaml:1: zookeeper.root: is "/elsewhere", and was "/cluster/b": a reload cannot move a group`},
		"the unit of a":       {func(h hostFiles) { h.put("b.yaml", "child: {unit: a.service}") }, `b.yaml:1: child.unit: "a.service" is the unit of group a, too`},
		"a directory":         {func(h hostFiles) { h.remove("b.yaml"); os.Mkdir(h.path("b.yaml"), 0o700) }, "b.yaml: is not a regular file"},
		"its first slots":     {func(h hostFiles) { h.put("b.yaml", "slots: {count: 2}") }, "b.yaml:1: slots.count: is 2, and was 0: a group with one leader and one with slots are different groups"},
		"a group of the host": {func(h hostFiles) { h.put("b.yaml", "http: {listen: ''}") }, "b.yaml:1: http.listen: is a setting of the host"},
	} {
		t.Run(name, func(t *testing.T) {
			files := five()
			files["a"] = "child: {unit: a.service}\n"
			h := newHost(t, "", files)
			running := h.load()
			c.damage(h)
			h.put("c.yaml", "child: {command: [other]}\n")
			h.setMain("node: {site: dc9}\n")
			r := h.reload(running, false)
			if got := summary(r); got != "added [] changed [a b c d e] removed [] refused [b]" || names(r.Host) != "a b c d e" {
				t.Fatalf("%s: %s", got, names(r.Host))
			}
			if got := h.short(r.Refused["b"]); !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			b, was := groupOf(t, r.Host, "b"), groupOf(t, running, "b")
			if b.Child.Command[0] != "b" || b.ZooKeeper.Root != was.ZooKeeper.Root || b.Node.Site != "dc9" {
				t.Errorf("b did not keep its settings, with those of the host: %+v", b)
			}
			if groupOf(t, r.Host, "c").Child.Command[0] != "other" {
				t.Error("another group was not changed")
			}
			if again, err := Unbundle(Bundle(r.Host)); err != nil || groupOf(t, again, "b").Child.Command[0] != "b" {
				t.Errorf("the content does not have what runs: %v", err)
			}
		})
	}
}

// A new group must not take what belongs to one that runs, even if its name comes first.
func TestNewGroupTakesNothing(t *testing.T) {
	h := newHost(t, "", map[string]string{"b": "child: {unit: app.service}\nzookeeper: {root: /x}\n"})
	running := h.load()
	h.put("a.yaml", "zookeeper: {root: /x/y}\nchild: {unit: app.service}\n")
	h.put("Bad.yaml", "{}")
	r := h.reload(running, false)
	if got := summary(r); got != "added [] changed [] removed [] refused [Bad a]" || names(r.Host) != "b" {
		t.Fatalf("%s: %s", got, names(r.Host))
	}
	want := `a.yaml:1: zookeeper.root: "/x/y" is inside "/x", which belongs to group b` + "\n" + `a.yaml:2: child.unit: "app.service" is the unit of group b, too`
	if got := h.short(r.Refused["a"]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A group that is refused keeps its unit, so that another one must not take it.
func TestRefusedGroupKeepsItsUnit(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "child: {unit: 1.service}", "b": "child: {unit: 2.service}", "c": "child: {unit: 3.service}"})
	running := h.load()
	h.put("a.yaml", "child: {unit: 2.service}") // free if b moves on, which it can't
	h.put("b.yaml", "child: {unit: 3.service}")
	r := h.reload(running, false)
	if got := summary(r); got != "added [] changed [] removed [] refused [a b]" {
		t.Error(got)
	}
	h.put("c.yaml", "child: {unit: 1.service}") // all three can move on
	if got := summary(h.reload(running, false)); got != "added [] changed [a b c] removed [] refused []" {
		t.Error(got)
	}
}

func TestAbsenceIsNotRemoval(t *testing.T) {
	all := []string{"a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml"}
	for name, c := range map[string]struct {
		do         func(h hostFiles)
		want       string // the error; "" if the groups are removed
		overridden string // the error with --allow-removals
	}{
		"one of five":          {func(h hostFiles) { h.remove("a.yaml") }, "", ""},
		"two of five":          {func(h hostFiles) { h.remove("a.yaml", "e.yaml") }, "groups: the files of 2 of 5 groups are gone: a, e; if they are to end, run 'zkelectd reload --allow-removals'", ""},
		"all":                  {func(h hostFiles) { h.remove(all...) }, "groups: has no group files any more; 5 groups run; if they are to end", ""},
		"all but other files":  {func(h hostFiles) { h.remove(all...); h.put("README", "") }, "groups: has no group files any more", ""},
		"renamed together":     {func(h hostFiles) { h.remove("a.yaml", "b.yaml"); h.put("x.yaml", "{}"); h.put("y.yaml", "{}") }, "groups: the files of 2 of 5", ""},
		"the directory":        {func(h hostFiles) { os.RemoveAll(h.dir) }, "groups: cannot be read: no such file or directory; if the groups are to end, run 'zkelectd reload --allow-removals'", ""},
		"a file instead":       {func(h hostFiles) { os.RemoveAll(h.dir); write(h.t, h.dir, "") }, "groups: is not a directory", "groups: is not a directory"},
		"a directory for all":  {func(h hostFiles) { os.Chmod(h.dir, 0o777) }, "groups: can be changed by others", "groups: can be changed by others"},
		"damaged, not removed": {func(h hostFiles) { h.put("a.yaml", ""); h.put("b.yaml", "") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "", five())
			running := h.load()
			c.do(h)
			for allow, want := range map[bool]string{false: c.want, true: c.overridden} {
				r, err := ReloadHost(h.sources(), running, allow)
				switch {
				case err == nil && want != "":
					t.Errorf("allowed %t: %s, want the error %s", allow, summary(r), want)
				case err != nil && (want == "" || !strings.HasPrefix(h.short(err), want)):
					t.Errorf("allowed %t: got  %v\nwant %s", allow, h.short(err), want)
				case err != nil && len(r.Host.Groups) > 0:
					t.Errorf("refused, but %+v", r)
				}
			}
		})
	}
	// The last of all groups, and the first two of ten.
	h := newHost(t, "", map[string]string{"a": "{}"})
	running := h.load()
	h.remove("a.yaml")
	if _, err := ReloadHost(h.sources(), running, false); err == nil {
		t.Error("the only group was removed")
	}
	r := h.reload(running, true)
	if summary(r) != "added [] changed [] removed [a] refused []" {
		t.Error(summary(r))
	}
	if again, err := Unbundle(Bundle(r.Host)); err != nil || len(again.Groups) != 0 {
		t.Errorf("a restart after it: %v", err)
	}
	h = newHost(t, "", manyGroups(10))
	running = h.load()
	h.remove("g1.yaml", "g2.yaml")
	if got := summary(h.reload(running, false)); got != "added [] changed [] removed [g1 g2] refused []" {
		t.Error(got)
	}
}

func TestReloadRefusesTheMainFileAsAWhole(t *testing.T) {
	for name, c := range map[string]struct{ main, want string }{
		"damaged":           {"node: [", "z.yaml: is not YAML"},
		"an unknown key":    {"nod: {}", "z.yaml:2: nod: is not a setting"},
		"a wrong default":   {"defaults: {child: {command: a}}", "z.yaml:2: defaults.child.command: must be a list"},
		"another root":      {"zookeeper: {root: /other}", `z.yaml:2: zookeeper.root: is "/other", and was "/cluster": a reload cannot move the groups`},
		"a group's setting": {"child: {dir: /}", "z.yaml:2: child.dir: is a setting of a group"},
	} {
		h := newHost(t, "", five())
		running := h.load()
		h.setMain(c.main)
		if _, err := ReloadHost(h.sources(), running, true); err == nil || !strings.HasPrefix(h.short(err), c.want) {
			t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
		}
	}
	h := newHost(t, "", five())
	running := h.load()
	write(t, h.main, "child: {command: [a]}\n")
	if _, err := ReloadHost(h.sources(), running, true); err == nil || !strings.Contains(err.Error(), `groups_dir: is "", and was "`) {
		t.Errorf("without groups_dir: %v", err)
	}
	single, err := LoadHost(h.sources())
	if err != nil {
		t.Fatal(err)
	}
	h.setMain("")
	if _, err := ReloadHost(h.sources(), single, true); err == nil || !strings.Contains(h.short(err), "z.yaml:1: groups_dir: is") {
		t.Errorf("with groups_dir: %v", err)
	}
}

// A daemon with one group keeps its name; a changed root is a setting that needs a restart.
func TestReloadOfOneGroup(t *testing.T) {
	src := Sources{File: file(t, "zookeeper: {root: /x/app}\n"+lockOnly)}
	running, err := LoadHost(src)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"zookeeper: {root: /x/app}\nlog: {level: debug}\n":    nothing,
		"zookeeper: {root: /x/app}\nnode: {priority: 7}\n":    "added [] changed [app] removed [] refused []",
		"zookeeper: {root: /x/other}\nhooks: {timeout: 3s}\n": "added [] changed [app] removed [] refused []",
	} {
		text += lockOnly
		write(t, src.File, text)
		r, err := ReloadHost(src, running, false)
		if err != nil || summary(r) != want || names(r.Host) != "app" {
			t.Errorf("%q: %v, %s", text, err, summary(r))
		}
	}
	write(t, src.File, "nod: {}")
	if _, err := ReloadHost(src, running, false); err == nil {
		t.Error("a damaged file was accepted")
	}
}

// Commands use the groups whose files are valid: a reload with nothing that runs.
func TestReloadFromNothing(t *testing.T) {
	h := newHost(t, "defaults: {hooks: {timeout: 3s}}\n", five())
	h.put("b.yaml", "")
	r := h.reload(Host{}, false)
	if summary(r) != "added [a c d e] changed [] removed [] refused [b]" || groupOf(t, r.Host, "a").Hooks.Timeout != 3*time.Second {
		t.Error(summary(r))
	}
	h.remove("a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml")
	if _, err := ReloadHost(h.sources(), Host{}, false); err == nil || !strings.HasSuffix(err.Error(), "groups: has no group: create a file NAME.yaml for each group") {
		t.Errorf("an empty directory: %v", err)
	}
	one, err := ReloadHost(Sources{Command: []string{"app"}}, Host{}, false)
	if err != nil || summary(one) != "added [cluster] changed [] removed [] refused []" {
		t.Errorf("%v, %s", err, summary(one))
	}
}
