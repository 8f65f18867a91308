package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
)

// hostFiles is a main file and its directory of group files.
type hostFiles struct {
	t    testing.TB
	main string
	dir  string
}

// newHost writes a main file with groups_dir, and a file for each group.
func newHost(t testing.TB, text string, groups map[string]string) hostFiles {
	t.Helper()
	dir := t.TempDir()
	h := hostFiles{t, filepath.Join(dir, "z.yaml"), filepath.Join(dir, "groups")}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.setMain(text)
	for name, text := range groups {
		h.put(name+".yaml", text)
	}
	return h
}

func (h hostFiles) setMain(text string) {
	h.t.Helper()
	write(h.t, h.main, "groups_dir: "+h.dir+"\n"+text)
}

func (h hostFiles) path(base string) string { return filepath.Join(h.dir, base) }

func (h hostFiles) put(base, text string) {
	h.t.Helper()
	write(h.t, h.path(base), text)
}

func (h hostFiles) remove(bases ...string) {
	h.t.Helper()
	for _, base := range bases {
		if err := os.Remove(h.path(base)); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h hostFiles) sources() Sources { return Sources{File: h.main} }

func (h hostFiles) load() Host {
	h.t.Helper()
	host, err := LoadHost(h.sources())
	if err != nil {
		h.t.Fatal(err)
	}
	return host
}

// fault loads the files, which must be refused, and returns the error with short paths.
func (h hostFiles) fault() string {
	h.t.Helper()
	host, err := LoadHost(h.sources())
	var errs Errors
	if !errors.As(err, &errs) || !reflect.DeepEqual(host, Host{}) {
		h.t.Fatalf("not refused as a whole: %v, %+v", err, host)
	}
	return h.short(err)
}

func (h hostFiles) short(err error) string {
	return strings.ReplaceAll(strings.ReplaceAll(err.Error(), h.dir+"/", ""), filepath.Dir(h.main)+"/", "")
}

func groupOf(t testing.TB, h Host, name string) Config {
	t.Helper()
	c, ok := h.Group(name)
	if !ok {
		t.Fatalf("there is no group %s: %s", name, names(h))
	}
	return c
}

func names(h Host) string {
	var all []string
	for _, g := range h.Groups {
		all = append(all, g.Name)
	}
	return strings.Join(all, " ")
}

// Maps merge and lists replace, from the main file over the defaults to the group file.
func TestGroupsMerge(t *testing.T) {
	h := newHost(t, `
node: {id: n1, priority: 5, labels: {rack: r1, disk: ssd}}
zookeeper: {root: /zk, servers: [a, b]}
defaults:
  policy: {sites: {dc1: 2, dc2: 1}, filter: ["true"]}
  child: {stop_timeout: 1s, env: {A: "1", B: "1"}, command: [/bin/default, x]}
`, map[string]string{
		"plain":   "{}",
		"billing": "child: {command: [/usr/bin/billing], env: {B: \"2\", C: \"2\"}}\nnode: {labels: {rack: r2}, priority: 9, observer: true}\npolicy: {sites: {dc2: 3}, filter: []}\n",
		"old":     "zookeeper: {root: /legacy/old}\nnode: {labels: {}}\npolicy: {sites: ~}\n",
	}).load()
	if names(h) != "billing old plain" || h.Config.GroupsDir != h.Dir || len(h.Warnings) > 0 {
		t.Fatalf("%s, %+v", names(h), h)
	}
	for group, want := range map[string]map[string]any{
		"plain": {
			"zookeeper.root": "/zk/plain", "node.priority": 5, "child.stop_timeout": time.Second, "child.command": []string{"/bin/default", "x"}, "groups_dir": "",
			"node.id": "n1", "zookeeper.servers": []string{"a:2181", "b:2181"}, "policy.sites": map[string]int{"dc1": 2, "dc2": 1},
		},
		"billing": {
			"zookeeper.root": "/zk/billing", "node.priority": 9, "node.observer": true, "child.stop_timeout": time.Second, "child.command": []string{"/usr/bin/billing"},
			"child.env": map[string]string{"A": "1", "B": "2", "C": "2"}, "node.labels": map[string]string{"rack": "r2", "disk": "ssd"},
			"policy.sites": map[string]int{"dc1": 2, "dc2": 3}, "policy.filter": []string{},
		},
		"old": {"zookeeper.root": "/legacy/old", "node.labels": map[string]string{}, "policy.sites": map[string]int{}},
	} {
		c := groupOf(t, h, group)
		for key, value := range want {
			if got := c.settings()[key]; !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %v, want %v", group, key, got, value)
			}
		}
		// What check --print prints is a configuration of one group.
		again := mustLoad(t, Sources{File: file(t, c.YAML())})
		if reload, restart := Diff(c, again); len(reload)+len(restart) > 0 {
			t.Errorf("%s: %v %v differ", group, reload, restart)
		}
	}
	if _, ok := h.Group("nothing"); ok {
		t.Error("a group that is not there was found")
	}
}

// A group that says what its work is, or that it has none, does not inherit another kind of work.
func TestWorkOfAGroupReplacesTheDefault(t *testing.T) {
	groups := map[string]string{
		"command": "child: {command: [own]}\n", "unit": "child: {unit: own.service}\n", "none": "child: {none: true}\nhooks: {on_leader_change: [tell]}\n",
		"same": "child: {stop_timeout: 1s}\n", "false": "child: {none: false}\n",
	}
	for inherited, want := range map[string]map[string]string{
		"command: [default]":    {"same": "[default]  false", "false": "[default]  false"},
		"unit: default.service": {"same": "[] default.service false"},
		"none: true":            {"same": "[]  true"},
	} {
		all := maps.Clone(groups)
		if inherited != "command: [default]" {
			delete(all, "false") // it would have no work, or the unit of another group
		}
		h := newHost(t, "defaults: {child: {"+inherited+"}}\n", all).load()
		for name := range all {
			c := groupOf(t, h, name).Child
			expected := map[string]string{"command": "[own]  false", "unit": "[] own.service false", "none": "[]  true"}[name]
			if want[name] != "" {
				expected = want[name]
			}
			if got := fmt.Sprintf("%v %s %v", c.Command, c.Unit, c.None); got != expected {
				t.Errorf("%s over %s: %s, want %s", name, inherited, got, expected)
			}
		}
	}
	got := newHost(t, "defaults: {child: {command: [default]}}\n", map[string]string{"a": "child: {none: true, command: [own]}\n"}).fault()
	if !strings.Contains(got, "a.yaml:1: child.none: cannot be set together") {
		t.Error(got)
	}
}

// Without groups_dir a file is one group, with the name in ZKELECTD_GROUP.
func TestHostOfOneGroup(t *testing.T) {
	src := Sources{File: file(t, "zookeeper: {root: /zk/app}\nchild: {command: [app]}\n"), Env: []string{"ZKELECTD_NODE_ID=a"}}
	h, err := LoadHost(src)
	if err != nil || h.Dir != "" || names(h) != "app" || !reflect.DeepEqual(h.Groups[0].Config, h.Config) || h.Groups[0].File != src.File {
		t.Fatalf("%v, %+v", err, h)
	}
	write(t, src.File, "damaged: [\n")
	if h, err := LoadHost(Sources{}); err != nil || names(h) != "cluster" {
		t.Errorf("without a file: %v, %+v", err, h)
	}
	if _, err := LoadHost(Sources{File: src.File}); err == nil || !strings.Contains(err.Error(), "is not YAML") {
		t.Errorf("damaged: %v", err)
	}
}

// A command for one group does not take the znode above all groups for a root.
func TestLoadRefusesManyGroups(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "{}"})
	if _, err := Load(h.sources()); err == nil || !strings.Contains(err.Error(), "z.yaml:1: groups_dir: names several groups") {
		t.Errorf("error %v", err)
	}
}

func TestScopes(t *testing.T) {
	for name, c := range map[string]struct {
		main, group string
		want        string
	}{
		"a group's setting in the main file": {"child: {command: [a]}", "{}", "z.yaml:2: child.command: is a setting of a group: write it under defaults in z.yaml, or in NAME.yaml"},
		"a host's setting in the defaults":   {"defaults:\n  http: {listen: a:1}", "{}", "z.yaml:3: defaults.http.listen: is a setting of the host: write it outside of defaults"},
		"groups_dir in the defaults":         {"defaults: {groups_dir: /a}", "{}", "z.yaml:2: defaults.groups_dir: is a setting of the host"},
		"an unknown default":                 {"defaults: {child: {comand: [a]}}", "{}", "z.yaml:2: defaults.child.comand: is not a setting; did you mean defaults.child.command?"},
		"defaults that are no section":       {"defaults: [a]", "{}", "z.yaml:2: defaults: must be a section of keys"},
		"defaults twice":                     {"defaults: {}\ndefaults: {}", "{}", "z.yaml:3: defaults: is given twice"},
		"a typing error":                     {"default: {}", "{}", "z.yaml:2: default: is not a setting; did you mean defaults?"},
		"a host's setting in a group":        {"", "log: {level: debug}", "a.yaml:1: log.level: is a setting of the host: write it in z.yaml"},
		"defaults in a group":                {"", "defaults: {}", "a.yaml:1: defaults: is not a setting"},
		"an unknown setting in a group":      {"", "child:\n  comand: [a]", "a.yaml:2: child.comand: is not a setting; did you mean child.command?"},
		"a relative directory":               {"", "{}", "is not a clean absolute path"},
		"an invalid root above the groups":   {"zookeeper: {root: zk}", "{}", `z.yaml:2: zookeeper.root: "zk" must begin with /`},
		"a bad value from the defaults":      {"defaults: {child: {stop_signal: NOPE}}", "{}", "z.yaml:2: child.stop_signal"},
		"a bad value of a group":             {"", "child: {stop_signal: NOPE}", "a.yaml:1: child.stop_signal"},
		"two that do not fit together":       {"defaults: {child: {ready: {tcp: 'a:1'}}}", "child: {ready: {notify: true}}", "z.yaml:2: child.ready.tcp: cannot be set together with child.ready.notify"},
		"one that is missing":                {"", "policy: {type: exec}", "a.yaml: policy.exec: the policy type exec needs a program"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, c.main, map[string]string{"a": c.group, "b": "{}"})
			if name == "a relative directory" {
				write(t, h.main, "groups_dir: groups\n")
			}
			got := h.fault()
			if !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if lines := strings.Count(got, "\n") + 1; lines != 1 && name != "a relative directory" {
				t.Errorf("one mistake, but %d errors:\n%s", lines, got)
			}
		})
	}
	_, err := Load(Sources{File: file(t, "defaults: {child: {command: [a]}}")})
	if err == nil || !strings.Contains(err.Error(), "defaults.child.command: has no effect without groups_dir") {
		t.Errorf("defaults of one group: %v", err)
	}
}

// The environment and flags would change all groups.
func TestSettingsOfGroupsHaveNoFlags(t *testing.T) {
	h := newHost(t, "zookeeper: {root: /zk}\n", map[string]string{"a": "{}"})
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	RegisterFlags(fs)
	if err := fs.Parse([]string{"--priority", "7", "--root", "/other"}); err != nil {
		t.Fatal(err)
	}
	src := h.sources()
	src.Flags, src.Env = fs, []string{"ZKELECTD_NODE_SITE=dc7"}
	host, err := LoadHost(src)
	if err != nil {
		t.Fatal(err)
	}
	if c := groupOf(t, host, "a"); c.Node.Priority != 7 || c.ZooKeeper.Root != "/other/a" || c.Node.Site != "dc7" {
		t.Errorf("settings of the host: %+v %+v", c.Node, c.ZooKeeper)
	}
	src.Env, src.Command = []string{"ZKELECTD_HOOKS_TIMEOUT=1s"}, []string{"app"}
	_, err = LoadHost(src)
	for _, want := range []string{
		"ZKELECTD_HOOKS_TIMEOUT: hooks.timeout: is a setting of a group: write it under defaults in z.yaml, or in NAME.yaml",
		"command line: child.command: is a setting of a group: write it under defaults",
	} {
		if err == nil || !strings.Contains(h.short(err), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err = LoadHost(Sources{Env: []string{"ZKELECTD_GROUPS_DIR=" + h.dir, "ZKELECTD_CHILD_DIR=/"}})
	if want := "ZKELECTD_CHILD_DIR: child.dir: is a setting of a group: write it NAME.yaml"; err == nil || h.short(err) != strings.Replace(want, "it NAME", "it in NAME", 1) {
		t.Errorf("without a main file: %v", err)
	}
	if host, err := LoadHost(Sources{Env: []string{"ZKELECTD_GROUPS_DIR=" + h.dir}}); err != nil || names(host) != "a" {
		t.Errorf("without a main file: %v", err)
	}
}

func TestAllErrorsOfAllFilesAreReportedAtOnce(t *testing.T) {
	h := newHost(t, "node: {priority: high}\ndefaults: {child: {comand: [a], stop_signal: NOPE}}\n", map[string]string{
		"a": "child: {command: b}\n", "b": "nod: {}\n", "c": "", "d": "child: {unit: app}\nhooks:\n  timeout: 1\n", "e": "{}",
	})
	got := h.fault()
	want := []string{
		`z.yaml:3: defaults.child.comand: is not a setting; did you mean defaults.child.command?`,
		`z.yaml:2: node.priority: "high" is not an integer (32 bits)`,
		`a.yaml:1: child.command: must be a list, as in [a, b]`,
		`z.yaml:3: child.stop_signal: "NOPE" is not a signal, as in TERM`,
		`b.yaml:1: nod: is not a setting; did you mean node?`,
		`c.yaml: is empty: write {} for a group that has only the defaults`,
		`d.yaml:1: child.unit: "app" is not the name of a service, as in app.service`,
		`d.yaml:3: hooks.timeout: "1" is not a duration: write a unit, as in 1s`,
	}
	if !slices.Equal(strings.Split(got, "\n"), want) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestBadGroupFiles(t *testing.T) {
	for name, c := range map[string]struct {
		make func(h hostFiles)
		want string
	}{
		"only comments":      {func(h hostFiles) { h.put("x.yaml", "# child:\n") }, "x.yaml: is empty"},
		"two documents":      {func(h hostFiles) { h.put("x.yaml", "{}\n---\n{}\n") }, "x.yaml: contains more than one YAML document"},
		"a pipe":             {func(h hostFiles) { mkfifo(h.t, h.path("x.yaml")) }, "x.yaml: is not a regular file"},
		"a device":           {func(h hostFiles) { os.Symlink("/dev/zero", h.path("x.yaml")) }, "x.yaml: is not a regular file"},
		"large":              {func(h hostFiles) { h.put("x.yaml", "# "+strings.Repeat("x", maxFile)) }, "x.yaml: is larger than"},
		"an upper-case name": {func(h hostFiles) { h.put("Bad.yaml", "{}") }, `Bad.yaml: "Bad" cannot be the name of a group`},
		"a dash first":       {func(h hostFiles) { h.put("-a.yaml", "{}") }, `-a.yaml: "-a" cannot be the name`},
		"a long name":        {func(h hostFiles) { h.put(strings.Repeat("x", 64)+".yaml", "{}") }, "cannot be the name"},
		"a temporary one":    {func(h hostFiles) { os.Chmod(h.dir, 0o777|os.ModeSticky) }, "groups: can be changed by others, who can add files"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "", map[string]string{"a": "{}"})
			c.make(h)
			if got := h.fault(); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Copies that editors and package managers make are no groups, and neither is a README.
func TestOtherFilesAreIgnored(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "{}"})
	for _, base := range []string{".a.yaml.swp", ".b.yaml", "a.yaml~", "#a.yaml#", "a.yaml.bak", "a.yaml.dpkg-dist", "a.yaml.rpmnew", "b.yaml.disabled", "README", "c.json"} {
		h.put(base, "nonsense: [")
	}
	if err := os.Mkdir(h.path("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	host := h.load()
	if names(host) != "a" {
		t.Errorf("groups: %s", names(host))
	}
	var warned []string
	for _, w := range host.Warnings {
		path, _, _ := strings.Cut(w, ":")
		warned = append(warned, filepath.Base(path))
	}
	if fmt.Sprint(warned) != "[README c.json sub]" {
		t.Errorf("warnings: %q", host.Warnings)
	}
}

// Kubernetes mounts files as links to a directory that it replaces as a whole.
func TestLinkedGroupFile(t *testing.T) {
	h := newHost(t, "", nil)
	if err := os.Mkdir(h.path("..1"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("..1/a.yaml", "node: {priority: 7}\n")
	for to, at := range map[string]string{"..1": "..data", "..data/a.yaml": "a.yaml"} {
		if err := os.Symlink(to, h.path(at)); err != nil {
			t.Fatal(err)
		}
	}
	host := h.load()
	if c := groupOf(t, host, "a"); c.Node.Priority != 7 {
		t.Errorf("priority %d", c.Node.Priority)
	}
	if err := os.Chmod(h.path("..1/a.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := h.fault(); !strings.Contains(got, "a.yaml: can be changed by others") {
		t.Error(got)
	}
}

func TestRootsOfGroups(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string // the roots
		want string
	}{
		"a prefix that is no parent":      {"/x/a", "/x/ab", ""},
		"below its own record":            {"/zk/a/v2", "/x/b", ""},
		"equal":                           {"/x/a", "/x/a", `b.yaml:1: zookeeper.root: "/x/a" belongs to group a, too`},
		"inside":                          {"/x/a", "/x/a/b/c", `b.yaml:1: zookeeper.root: "/x/a/b/c" is inside "/x/a", which belongs to group a`},
		"around":                          {"/x/a/b/c", "/x/a", `b.yaml:1: zookeeper.root: "/x/a" contains a znode of group a`},
		"where the other one is recorded": {"/zk/b", "/x/b", `b.yaml:1: zookeeper.root: "/zk/b" belongs to group a, too`},
		"below the record of another one": {"/x/a", "/zk/a/b", `b.yaml:1: zookeeper.root: "/zk/a/b" is inside "/zk/a", which belongs to group a`},
		"the znode above the groups":      {"/zk", "/x/b", `a.yaml:1: zookeeper.root: "/zk" contains the zookeeper.root of the host, "/zk"`},
		"reserved":                        {"/zk/.hosts", "/x/b", `a.yaml:1: zookeeper.root: "/zk/.hosts" is reserved`},
		"inside what is reserved":         {"/zk/.hosts/n1", "/x/b", `a.yaml:1: zookeeper.root: "/zk/.hosts/n1" is reserved`},
		"invalid":                         {"x", "/x/b", `a.yaml:1: zookeeper.root: "x" must begin with /`},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(root string) string { return "zookeeper: {root: " + root + "}" }
			h := newHost(t, "zookeeper: {root: /zk}", map[string]string{"a": text(c.a), "b": text(c.b)})
			if c.want == "" {
				h.load()
			} else if got := h.fault(); got != c.want && !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	h := newHost(t, "zookeeper: {root: /zk/deep}", map[string]string{"a": "zookeeper: {root: /zk}"})
	if got, want := h.fault(), `a.yaml:1: zookeeper.root: "/zk" contains the zookeeper.root of the host, "/zk/deep"`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// The default root of one group may be what another one is set to.
	h = newHost(t, "", map[string]string{"a": "zookeeper: {root: /cluster/b}", "b": "{}"})
	if got, want := h.fault(), `b.yaml: zookeeper.root: "/cluster/b" belongs to group a, too`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func manyGroups(n int) map[string]string {
	groups := make(map[string]string)
	for i := range n {
		groups[fmt.Sprintf("g%d", i)] = "child: {command: [app]}\n"
	}
	return groups
}

func TestTooManyGroups(t *testing.T) {
	h := newHost(t, "", manyGroups(MaxGroups))
	if n := len(h.load().Groups); n != MaxGroups {
		t.Errorf("%d groups", n)
	}
	h.put("one-more.yaml", "{}")
	if got := h.fault(); got != h.dir+": has 1001 groups; a daemon can have at most 1000" && !strings.HasSuffix(got, "groups: has 1001 groups; a daemon can have at most 1000") {
		t.Error(got)
	}
}

// A mistyped group in a policy has no effect, so it is a warning.
func TestUnknownGroupsOfAPolicy(t *testing.T) {
	h := newHost(t, "", map[string]string{
		"cache": "policy: {rank: ['with:biling', 'apart:ingest/3'], apart_strict: [cache, ghost]}\n", "billing": "{}\n", "ingest": "{}\n",
	}).load()
	got := strings.Join(h.UnknownGroups(h.find("cache").Config.Rules()), "\n")
	const text = "the policy names the group %s, which this host does not have"
	if want := fmt.Sprintf(text+"; did you mean billing?\n"+text, "biling", "ghost"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if all := (Host{}).UnknownGroups(cluster.Rules{Rank: []string{"with:x"}}); len(all) > 0 {
		t.Errorf("a command without a directory: %v", all)
	}
}

// A bundle gives the same configuration when the files are gone and the host has another name.
func TestBundle(t *testing.T) {
	h := newHost(t, "node: {labels: {a: '1', B: x}}\nzookeeper: {session_timeout: 10s}\ndefaults: {child: {env: {A: b}}, policy: {hysteresis: 0}}\n", map[string]string{
		"a": "child: {command: [app, '--x: y']}\npolicy: {rank: ['expr:member.priority']}\n", "b": "node: {observer: true}\nzookeeper: {root: /other}\n",
	})
	single, err := LoadHost(Sources{Env: []string{"ZKELECTD_ZOOKEEPER_ROOT=/zk/app", "ZKELECTD_POLICY_HYSTERESIS=0"}, Command: []string{"app", "-x"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Host{h.load(), single} {
		checkBundle(t, want)
	}
	for _, damaged := range []string{"", "{", `{"host": "nod: 1"}`} {
		if _, err := Unbundle([]byte(damaged)); err == nil {
			t.Errorf("%q was accepted", damaged)
		}
	}
}

func checkBundle(t *testing.T, want Host) {
	t.Helper()
	text := Bundle(want)
	got, err := Unbundle(text)
	if err != nil || string(Bundle(got)) != string(text) || names(got) != names(want) || got.Dir != want.Dir {
		t.Fatalf("%v, %+v", err, got)
	}
	if !strings.Contains(string(text), "id: "+want.Config.Node.ID) {
		t.Errorf("it depends on the name of the host: %s", text)
	}
	for i, g := range want.Groups {
		if reload, restart := Diff(g.Config, got.Groups[i].Config); len(reload)+len(restart) > 0 || got.Groups[i].File != g.File {
			t.Errorf("%s: %v %v differ", g.Name, reload, restart)
		}
	}
	if reload, restart := Diff(want.Config, got.Config); len(reload)+len(restart) > 0 {
		t.Errorf("the host: %v %v differ", reload, restart)
	}
}

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Nothing waits for a FIFO that nobody writes to.
func TestAConfigurationThatIsAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zkelectd.yaml")
	mkfifo(t, path)
	if _, err := LoadHost(Sources{File: path}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("%v", err)
	}
}

func TestExampleOfGroupsLoads(t *testing.T) {
	dir, err := filepath.Abs("../../configs/groups.d")
	if err != nil {
		t.Fatal(err)
	}
	h, err := LoadHost(Sources{File: "../../configs/groups.yaml", Env: []string{"ZKELECTD_GROUPS_DIR=" + dir}})
	if err != nil || names(h) != "billing ingest reports" || len(h.Warnings) > 0 {
		t.Fatalf("%v, %+v", err, h)
	}
	if ingest := groupOf(t, h, "ingest").OfSlot(5, 8); ingest.Slots.Count != 8 || ingest.Slots.Limit() != 4 || ingest.Child.Command[2] != "5" {
		t.Errorf("ingest: %+v", ingest)
	}
	billing, reports := groupOf(t, h, "billing"), groupOf(t, h, "reports")
	if billing.ZooKeeper.Root != "/zkelectd/billing" || len(billing.Child.Env) != 2 || billing.Child.StopTimeout != 2*time.Second {
		t.Errorf("billing: %+v", billing)
	}
	if reports.ZooKeeper.Root != "/legacy/reports" || !reflect.DeepEqual(reports.Policy.Sites, map[string]int{"dc1": 200, "dc2": 300}) {
		t.Errorf("reports: %+v", reports)
	}
	if h, _, err := LoadCommand(Sources{File: "../../configs/groups.yaml"}); err != nil || h.Dir != "/etc/zkelectd.d" {
		t.Errorf("the main file alone: %v, %+v", err, h)
	}
}

// What check --print prints for the host loads as the same settings.
func TestHostYAML(t *testing.T) {
	h := newHost(t, "node: {site: dc7}\nchild: {containment: keeper}\ndefaults: {child: {command: [a]}}\n", map[string]string{"a": "{}"}).load()
	host, _, err := LoadCommand(Sources{File: file(t, h.YAML())})
	again := host.Config
	if err != nil || again.Node.Site != "dc7" || again.Child.Containment != "keeper" {
		t.Errorf("%v, %+v\n%s", err, again, h.YAML())
	}
	if reload, restart := Diff(h.Config, again); len(reload)+len(restart) > 0 {
		t.Errorf("%v %v differ", reload, restart)
	}
}

// Any group file beside a good one: it is refused with an error, or its group loads from the content again. The good one loads.
func FuzzGroupFile(f *testing.F) {
	f.Add("a", "child: {command: [a], env: {B: c}}\nnode: {labels: {x: y}}\n")
	f.Add("a", "zookeeper: {root: /zk/good}\n")
	f.Add("Bad", "zookeeper: {root: ''}\n")
	f.Add("x", "policy: {rank: ['expr:member.priority']}\nhttp: {listen: a:1}\n")
	f.Add("x", "defaults: {}\ngroups_dir: /\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		h := newHost(t, "zookeeper: {root: /zk}\ndefaults: {child: {env: {A: b}, stop_timeout: 1s}}\n", map[string]string{"good": "child: {command: [app]}\n"})
		if err := os.WriteFile(h.path(name+".yaml"), []byte(text), 0o600); err != nil || name == "good" || strings.Contains(name, "/") || isCopy(name+".yaml") {
			return
		}
		r, err := ReloadHost(h.sources(), Host{}, false)
		if err != nil {
			t.Fatalf("%q: everything is refused: %v", text, err)
		}
		if good, ok := r.Host.Group("good"); !ok || good.Child.Command[0] != "app" {
			t.Fatalf("%q: the good group is not there", text)
		}
		_, loaded := r.Host.Group(name)
		if refused := r.Refused[name]; loaded == (refused != nil) || refused != nil && refused.Error() == "" {
			t.Errorf("%q: %v, %v", text, loaded, refused)
		}
		again, err := Unbundle(Bundle(r.Host))
		if err != nil || names(again) != names(r.Host) {
			t.Fatalf("%q: its content: %v, %s", text, err, names(again))
		}
		for i, g := range again.Groups {
			if reload, restart := Diff(g.Config, r.Host.Groups[i].Config); len(reload)+len(restart) > 0 {
				t.Errorf("%q: %v %v differ", text, reload, restart)
			}
		}
	})
}

func TestCommandsIgnoreGroupsWithErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, file, text)
		return file
	}
	file := write("main.yaml", "zookeeper: {root: /zkelectd}\ngroups_dir: "+dir+"/groups\n")
	if h, ignored, err := LoadCommand(Sources{File: file}); err != nil || ignored == nil || len(h.Groups) != 0 || h.Dir == "" {
		t.Errorf("without the directory: %+v, %v, %v", h, ignored, err)
	}
	write("groups/billing.yaml", "policy: {type: first}\n")
	write("groups/mail.yaml", "policy: {type: frist}\n")
	h, ignored, err := LoadCommand(Sources{File: file})
	if err != nil || len(h.Groups) != 1 || h.Groups[0].Name != "billing" || h.Groups[0].Config.ZooKeeper.Root != "/zkelectd/billing" {
		t.Errorf("%+v, %v", h.Groups, err)
	}
	if ignored == nil || !strings.Contains(ignored.Error(), "mail.yaml") || strings.Contains(ignored.Error(), "billing") {
		t.Errorf("ignored: %v", ignored)
	}
	write("main.yaml", "zookeper: {}\ngroups_dir: "+dir+"/groups\n")
	if _, _, err := LoadCommand(Sources{File: file}); err == nil || !strings.Contains(err.Error(), "zookeper") {
		t.Errorf("an error in the main file: %v", err)
	}
}

func TestCirclesAreRefused(t *testing.T) {
	h := newHost(t, "", map[string]string{
		"a": "policy: {rank: ['with:b', spread]}", "b": "policy:\n  rank: ['with:c/0', spread]", "c": "policy: {apart_strict: [a]}",
		"d": "policy: {rank: ['apart:e', 'with:a']}", "e": "policy: {rank: ['apart:d']}", "f": "{}",
	})
	got := h.fault()
	for _, want := range []string{
		"a.yaml:1: policy.rank: with:b: the groups refer to each other in a circle (a -> b -> c -> a)", "b.yaml:2: policy.rank: with:", "c.yaml:1: policy.apart_strict: with:b",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if strings.Contains(got, "d.yaml") || strings.Contains(got, "e.yaml") {
		t.Error(got)
	}
	h.put("c.yaml", "{}")
	if names(h.load()) != "a b c d e f" {
		t.Error("refused without a circle")
	}
}

// A reload refuses the file that closes a circle, and no other.
func TestReloadRefusesWhatClosesACircle(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "{policy: {rank: ['with:b']}, child: {none: true}}", "b": lockOnly, "c": lockOnly})
	running := h.load()
	h.put("b.yaml", "{policy: {rank: ['apart:a']}, child: {none: true}}")
	r := h.reload(running, false)
	if err := r.Refused["b"]; len(r.Refused) != 1 || err == nil || !strings.Contains(err.Error(), "in a circle (a -> b -> a)") {
		t.Errorf("refused: %v", r.Refused)
	}
	if len(r.Changed) != 0 || names(r.Host) != "a b c" {
		t.Errorf("%+v", r)
	}
}

func TestWeightAndMaxLeaders(t *testing.T) {
	c := mustLoad(t, Sources{File: file(t, "node: {weight: 2.5, max_leaders: 7}")})
	if c.Node.Weight != 2.5 || c.Node.MaxLeaders != 7 {
		t.Errorf("%+v", c.Node)
	}
	for text, want := range map[string]string{
		"node: {weight: 0}":       "node.weight: 0 is not between 0.001 and 1000",
		"node: {weight: .inf}":    `node.weight: ".inf" is not a number, as in 1.5`,
		"node: {max_leaders: -1}": "node.max_leaders: must not be negative",
	} {
		if _, err := Load(Sources{File: file(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestDefaultsForManyGroups(t *testing.T) {
	h := newHost(t, "node: {id: n1}\nzookeeper: {root: /z}\ndefaults: {election: {settle: 5s}}\n", map[string]string{
		"plain": "{}", "own": "election: {settle: 0s}", "even": "policy: {type: spread}", "ranked": "policy: {rank: [site, spread]}",
		"now": "policy: {type: spread, failback: immediate}", "follows": "policy: {rank: ['with:even', oldest]}",
		"avoids": "policy: {rank: [site, 'apart:even', oldest]}", "strategy": "policy: {strategies: [{use: spread}]}",
		"strict": "policy: {apart_strict: [even]}", "slots": "slots: {count: 2}",
		"unused": "policy: {type: spread, rank: [site, oldest]}", "stays": "policy: {type: spread, failback: manual}",
	})
	host, err := LoadHost(Sources{File: h.main})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unbundle(Bundle(host))
	if err != nil {
		t.Fatal(err)
	}
	want := func(settle time.Duration, failback string) (c Config) {
		c.Election.Settle, c.Policy.Failback = settle, failback
		return c
	}
	for _, host := range []Host{host, again} {
		for name, want := range map[string]Config{
			"plain": want(5*time.Second, cluster.FailbackManual), "own": want(0, cluster.FailbackManual),
			"even": want(5*time.Second, "30s"), "ranked": want(5*time.Second, "30s"),
			"now": want(5*time.Second, cluster.FailbackImmediate), "follows": want(5*time.Second, "30s"),
			"avoids": want(5*time.Second, "30s"), "strategy": want(5*time.Second, "30s"),
			"strict": want(5*time.Second, cluster.FailbackManual), "slots": want(5*time.Second, "30s"),
			"unused": want(5*time.Second, cluster.FailbackManual), "stays": want(5*time.Second, cluster.FailbackManual),
		} {
			c, _ := host.Group(name)
			if c.Election.Settle != want.Election.Settle || c.Policy.Failback != want.Policy.Failback {
				t.Errorf("%s: settle %s, failback %s", name, c.Election.Settle, c.Policy.Failback)
			}
		}
	}
}

func TestDefaultsForOneGroup(t *testing.T) {
	c, err := Load(Sources{Env: []string{"ZKELECTD_POLICY_TYPE=spread"}})
	if err != nil || c.Election.Settle != 3*time.Second || c.Policy.Failback != "30s" {
		t.Errorf("%+v, %v", c.Election, err)
	}
}
