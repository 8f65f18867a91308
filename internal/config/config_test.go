package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/testhelper"
)

func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "z.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustLoad(t testing.TB, src Sources) Config {
	t.Helper()
	c, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Without child.stop_timeout the stop timeout is what the lease allows; an explicit value does not change.
func TestStopTimeout(t *testing.T) {
	for content, want := range map[string]time.Duration{
		"child: {command: [app]}":                      2250 * time.Millisecond,
		"child: {command: [app], stop_timeout: 0s}":    2250 * time.Millisecond,
		"child: {command: [app], stop_timeout: 100ms}": 100 * time.Millisecond,
		"child: {command: [app], stop_timeout: 9s}":    9 * time.Second,
		"child: {unit: app.service}":                   2250 * time.Millisecond,
		"node: {id: a}":                                0,
		"child: {stop_timeout: 1s}":                    0,
	} {
		c := mustLoad(t, Sources{File: file(t, content+"\n")})
		if got := c.StopTimeout(6 * time.Second); got != want {
			t.Errorf("%s: %s, want %s", content, got, want)
		}
	}
}

// The lease is as long as the session timeout allows, or what is configured, and the other times follow from it.
func TestLease(t *testing.T) {
	const ms = time.Millisecond
	for content, want := range map[string]cluster.Budget{
		"child: {command: [app]}": {Lease: 2700 * ms, Kill: 900 * ms, Stop: 2250 * ms, LeaseWait: 3672727272},
		"zookeeper: {session_timeout: 20s}\nelection: {lease: 900ms}\nchild: {command: [app]}":  {Lease: 900 * ms, Kill: 300 * ms, Stop: 750 * ms, LeaseWait: 1224242424},
		"zookeeper: {session_timeout: 20s, min_session_timeout: 4s}\nelection: {lease: 1500ms}": {Lease: 1500 * ms, Kill: 500 * ms, LeaseWait: 2040404040},
	} {
		c := mustLoad(t, Sources{File: file(t, content+"\n")})
		base := c.ZooKeeper.LeaseBase(c.ZooKeeper.SessionTimeout)
		b, err := c.Budget(base)
		if got := (cluster.Budget{Lease: b.Lease, Kill: b.Kill, Stop: b.Stop, LeaseWait: b.LeaseWait}); err != nil || got != want || c.Lease(base) != want.Lease {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", content, got, err, want)
		}
	}
}

func TestLeaseRefused(t *testing.T) {
	for content, want := range map[string]string{
		"election: {lease: 800ms}":  "z.yaml:1: election.lease: 800ms is too short",
		"election: {lease: 2701ms}": "z.yaml:1: election.lease: 2.701s is too long for a session timeout of 6s, which allows 2.7s",
		"zookeeper: {session_timeout: 20s, min_session_timeout: 4s}\nelection: {lease: 2s}": "z.yaml:2: election.lease: 2s is too long for a session timeout of 4s",
		"election: {lost_after: 3s}":                   "z.yaml:1: election.lost_after: 3s is too short: the lease of a silent leader is only sure to be over after 3.67s",
		"election: {lost_after: 1200ms, lease: 900ms}": "election.lost_after: 1.2s is too short: the lease of a silent leader is only sure to be over after 1.22s",
		"election: {lost_after: 7s}":                   "election.lost_after: 7s is longer than zookeeper.session_timeout (6s)",
		strings.Replace(safe, "[app]}", "[app], stop_timeout: 400ms}\nelection: {lease: 900ms}", 1): "child.stop_timeout: 400ms is longer than the 300ms that failsafe mode leaves of the lease of 900ms: shorten it, or raise election.lease to 1.2s",
	} {
		if _, err := Load(Sources{File: file(t, content)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	c := mustLoad(t, Sources{File: file(t, "election: {lost_after: 3670ms}\n")})
	if _, restart := Diff(mustLoad(t, Sources{}), c); !slices.Contains(restart, "election.lost_after") || c.Election.LostAfter != 3670*time.Millisecond {
		t.Errorf("lost_after %s, a restart is needed for %v", c.Election.LostAfter, restart)
	}
	if IsGroupKey("election.lease") || !IsGroupKey("election.lost_after") {
		t.Error("the groups of a host share its lease, and nothing else")
	}
}

// A unit is work with a stop timeout, and its socket is in the runtime directory.
func TestUnit(t *testing.T) {
	for _, name := range []string{"app.service", "app@a.service", `a-b\\x2dc:d_1.service`} {
		c := mustLoad(t, Sources{File: file(t, fmt.Sprintf("child: {unit: \"%s\", stop_timeout: 3s}\n", name))})
		if got := c.StopTimeout(10 * time.Second); got != 3*time.Second {
			t.Errorf("%s: %s", name, got)
		}
	}
	for dir, want := range map[string]string{"": "", "/run/z": "/run/z/app.service.sock", "/run/z:/run/y": "/run/z/app.service.sock"} {
		if got := (Config{Child: Child{Unit: "app.service"}}).UnitSocket(func(string) string { return dir }); got != want {
			t.Errorf("%q: %q", dir, got)
		}
	}
}

// A main file without anything may have been truncated: it is refused.
func TestEmptyFileIsRefused(t *testing.T) {
	for _, text := range []string{"", "\n", "# node: {id: a}\n", "---\n"} {
		path := file(t, text)
		if _, err := Load(Sources{File: path}); err == nil || !strings.Contains(err.Error(), path+": is empty: write {} ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	path := file(t, "{}\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, path + ".absent"} { // it is not known what they contain
		if _, err := Load(Sources{File: path}); err == nil || strings.Contains(err.Error(), "is empty") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	for name, src := range map[string]Sources{
		"nothing": {}, "empty map": {File: file(t, "# nothing\n{}\n")}, "empty section": {File: file(t, "node:\n")},
	} {
		c := mustLoad(t, src)
		host, _ := os.Hostname()
		if c.Node.ID != host || c.Node.Priority != 100 || c.ZooKeeper.SessionTimeout != 6*time.Second || c.Policy.Type != "priority" ||
			c.ZooKeeper.Servers[0] != "127.0.0.1:2181" || c.Child.MaxRestarts != 3 || c.Log.Level != "info" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestSourcesOverrideEarlierOnes(t *testing.T) {
	path := file(t, "node: {id: file, site: file, priority: 1}\nzookeeper: {root: /file, servers: [file:1]}\nchild: {command: [file]}\n")
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	RegisterFlags(fs)
	if err := fs.Parse([]string{"--root", "/flag", "--label", "rack=r1,Zone=Z"}); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, Sources{
		File: path, Flags: fs, Command: []string{"app", "--x"},
		Env: []string{"ZKELECTD_NODE_SITE=env", "ZKELECTD_ZOOKEEPER_ROOT=/env", "ZKELECTD_ZOOKEEPER_SERVERS=a:1,b", "ZKELECTD_POLICY_SITES=DC=3", "PATH=/bin"},
	})
	want := map[string]any{
		"node.id": "file", "node.site": "env", "node.priority": 1, "zookeeper.root": "/flag", "zookeeper.servers": []string{"a:1", "b:2181"},
		"child.command": []string{"app", "--x"}, "node.labels": map[string]string{"rack": "r1", "Zone": "Z"}, "policy.sites": map[string]int{"DC": 3},
	}
	for key, value := range want {
		if got := c.settings()[key]; !reflect.DeepEqual(got, value) {
			t.Errorf("%s is %v, want %v", key, got, value)
		}
	}
}

// Commands must work in the environment of the work, although its variables look like settings.
func TestVariablesOfTheWorkAreNotSettings(t *testing.T) {
	mustLoad(t, Sources{Env: []string{"ZKELECTD_NODE=a", "ZKELECTD_SITE=b", "ZKELECTD_GROUP=c", "ZKELECTD_TERM=7", "ZKELECTD_ROOT=/x", "ZKELECTD_SLOT=3", "ZKELECTD_SLOTS=4", "ZKELECTD_EPOCH=1"}})
}

func TestErrorsHaveKeyAndReason(t *testing.T) {
	long := strings.Repeat("x", 90)
	for text, want := range map[string]string{
		"nod: {id: a}":                                    "z.yaml:1: nod: is not a setting; did you mean node?",
		"node:\n  priority: high":                         `z.yaml:2: node.priority: "high" is not an integer`,
		"node: {priority: 99999999999}":                   "node.priority",
		"node: [a]":                                       "node: must be a section",
		"node: {id: [a]}":                                 "node.id: must be a string",
		"node: {labels: {a: {b: c}}}":                     "node.labels: a: must be a single value",
		"node: {id: a}\nnode: {id: b}":                    "already defined|is given twice",
		"node: {id: a/b}":                                 `node.id: "a/b" contains '/'`,
		"node: {id: \"a\\u0085b\"}":                       "node.id",
		"node: {id: \"\\uffff\"}":                         "node.id",
		"node: {id: \"..\"}":                              "not allowed in a znode path",
		"node: {id: ' a'}":                                "begins or ends with a space",
		"node: {site: ''}":                                "node.site: \"\" is empty",
		"node: {id: " + strings.Repeat("x", 129) + "}":    "longer than 128 bytes",
		"zookeeper: {servers: []}":                        "zookeeper.servers: is empty",
		"zookeeper: {servers: ['a:b']}":                   `"a:b" is not host:port`,
		"zookeeper: {servers: ['a:1/x']}":                 `"a:1/x" has a path: write that in front of zookeeper.root`,
		"zookeeper: {servers: a}":                         "zookeeper.servers: must be a list",
		"zookeeper: {root: cluster}":                      "must begin with /",
		"zookeeper: {root: /}":                            "must not be / itself",
		"zookeeper: {root: /a/}":                          `write it as "/a"`,
		"zookeeper: {root: /zookeeper/x}":                 "belongs to ZooKeeper itself",
		"zookeeper: {session_timeout: 6}":                 `"6" is not a duration: write a unit, as in 6s`,
		"zookeeper: {session_timeout: 1900ms}":            "is not between 2s and 10m",
		"zookeeper: {min_session_timeout: 1s}":            "zookeeper.min_session_timeout: 1s is neither 0s nor between 2s and zookeeper.session_timeout (6s)",
		"zookeeper: {session_timeout: }":                  "must be a duration, not empty",
		"policy: {sites: {dc1: x}}":                       "policy.sites: dc1",
		"policy: {sites: {'a/b': 1}}":                     "policy.sites",
		"child: {env: {'A-B': c}}":                        "is not the name of a variable",
		"child: {env: {ZKELECTD_TERM: '1'}}":              "are reserved",
		"child: {command: ['']}":                          "its first element, is empty",
		"child: {ready: {http: 'x', tcp: 'a:1'}}":         "cannot be set together with",
		"child: {ready: {http: ftp://x}}":                 "is not an http or https URL",
		"child: {ready: {tcp: nowhere}}":                  "child.ready.tcp",
		"child: {ready: {notify: yes}}":                   "neither true nor false",
		"child: {unit: app}":                              "is not the name of a service",
		"child: {unit: ../app.service}":                   "is not the name of a service",
		"child: {unit: app@.service}":                     "is not the name of a service",
		"child: {unit: a.service, command: [b]}":          "child.command: cannot be set together with child.unit",
		"child: {unit: a.service, dir: /tmp}":             "child.dir: cannot be set together with child.unit",
		"child: {unit: a.service, env: {A: b}}":           "child.env: cannot be set together with child.unit: use Environment=",
		"node: {site: 'a\"b'}\nchild: {unit: a.service}":  `node.site: "a\"b" contains '"', which systemd may not read as plain text`,
		"child: {unit: a.service, ready: {notify: true}}": "child.ready.notify: cannot be set together with child.unit",
		"child: {containment: cgruop}":                    `"cgruop" is not one of auto, cgroup, keeper; did you mean cgroup?`,
		"child: {stop_signal: NOPE}":                      "is not a signal",
		"child: {max_restarts: -1}":                       "must not be negative",
		"http: {listen: x}":                               `http.listen: "x" is neither host:port nor unix:/path nor none`,
		"http: {listen: unix:x}":                          "http.listen: \"unix:x\" must be unix: followed by",
		"http: {listen: 'unix:/'}":                        "http.listen",
		"http: {listen: unix:/" + long + "}":              "too long for the path of a socket",
		"log: {level: loud}":                              "log.level",
		"node: {id: a":                                    "is not YAML",
		"a: b\n---\nc: d":                                 "more than one YAML document",
		"- a":                                             "must be a section",
	} {
		c, err := Load(Sources{File: file(t, text)})
		var errs Errors
		found := false
		for _, w := range strings.Split(want, "|") {
			found = found || err != nil && strings.Contains(err.Error(), w)
		}
		if !errors.As(err, &errs) || !found {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if !reflect.DeepEqual(c, Config{}) {
			t.Errorf("%q: part of it was used", text)
		}
	}
}

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, err := Load(Sources{
		File: file(t, "nodes: {}\nnode: {priority: x}\nlog: {level: loud}\n"),
		Env:  []string{"ZKELECTD_NODE_SIT=a", "ZKELECTD_HOOKS_TIMEOUT=1"},
	})
	for _, want := range []string{"nodes: is not a setting", "node.priority", "log.level", "ZKELECTD_NODE_SIT: is not a setting; did you mean ZKELECTD_NODE_SITE?", "ZKELECTD_HOOKS_TIMEOUT: hooks.timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	var errs Errors
	if errors.As(err, &errs); len(errs) != 5 {
		t.Errorf("%d errors", len(errs))
	}
	if _, err := Load(Sources{File: "/no/such/file"}); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("Load: error %v", err)
	}
}

func TestDiff(t *testing.T) {
	a := mustLoad(t, Sources{Env: []string{"ZKELECTD_NODE_ID=a"}})
	b := mustLoad(t, Sources{Env: []string{"ZKELECTD_NODE_ID=b", "ZKELECTD_NODE_PRIORITY=7", "ZKELECTD_POLICY_SITES=x=1", "ZKELECTD_HOOKS_TIMEOUT=1s"}})
	reload, restart := Diff(a, b)
	if fmt.Sprint(reload) != "[node.priority policy.sites]" || fmt.Sprint(restart) != "[node.id hooks.timeout]" {
		t.Errorf("reload %v, restart %v", reload, restart)
	}
	if reload, restart := Diff(a, a); len(reload)+len(restart) != 0 {
		t.Errorf("differs from itself in %v %v", reload, restart)
	}
}

// A reload applies all keys that are marked with Reload and no other, and changes neither of the two configurations.
func TestApplyReload(t *testing.T) {
	current := mustLoad(t, Sources{})
	next := current
	for _, f := range next.fields() {
		testhelper.Alter(f)
	}
	before := current.settings()
	inForce := ApplyReload(current, next)
	applied, kept := Diff(current, inForce)
	if len(kept) > 0 {
		t.Errorf("these need a restart, but were applied: %v", kept)
	}
	if left, restart := Diff(inForce, next); len(left) > 0 || len(restart)+len(applied) != len(Keys()) {
		t.Errorf("not applied: %v; applied: %v", left, applied)
	}
	if !reflect.DeepEqual(current.settings(), before) {
		t.Error("the current configuration was changed")
	}
}

// The output of check loads as the same configuration.
func TestYAMLRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[A-Za-z0-9<>'": {},#&*!|%@-][A-Za-z0-9<>'": {},#&*!|%@-]{0,8}[a-z]`)
		name := word.Filter(func(s string) bool { return CheckName(s) == nil })
		c := mustLoad(&testing.T{}, Sources{})
		c.Node.ID, c.Node.Site = name.Draw(t, "id"), name.Draw(t, "site")
		c.Node.Priority = int(rapid.Int32().Draw(t, "priority"))
		c.Node.Labels = rapid.MapOf(word, word).Draw(t, "labels")
		c.Policy.Sites = rapid.MapOf(name, rapid.IntRange(-5, 5)).Draw(t, "sites")
		c.Child.Command = append([]string{"app"}, rapid.SliceOf(word).Draw(t, "command")...)
		c.Child.Dir = word.Draw(t, "dir")
		c.Hooks.Timeout = time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "timeout"))
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(c.YAML()), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Load(Sources{File: path})
		if err != nil {
			t.Fatalf("%v\n%s", err, c.YAML())
		}
		if reload, restart := Diff(c, again); len(reload)+len(restart) != 0 {
			t.Fatalf("%v %v differ:\n%s", reload, restart, c.YAML())
		}
	})
}

// A device, a log or a core that is named by mistake must not be read into memory as a whole.
func TestLargeFileIsRefused(t *testing.T) {
	comment := "# " + strings.Repeat("x", maxFile-6) + "\n{}\n"
	mustLoad(t, Sources{File: file(t, comment)})
	for _, path := range []string{file(t, comment+"\n"), "/dev/zero"} {
		if _, err := Load(Sources{File: path}); err == nil || !strings.Contains(err.Error(), path+": is larger than 1048576 bytes") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("node: {id: a, labels: {x: y}}\nchild: {command: [a, b]}\n")
	f.Add("a: &a [*a]\n")
	f.Add("node: *x\n")
	f.Add("policy: {rank: ['expr:member.priority'], sites: {dc1: 2}, strategies: [{when: 'true', use: first}]}\nzookeeper: {session_timeout: 6s}\n")
	f.Add("--- {}\n--- {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Load(Sources{File: file(t, text)})
		var errs Errors
		switch {
		case err == nil:
			// A configuration that loads can be printed, and the output loads as the same one.
			again, err := Load(Sources{File: file(t, c.YAML())})
			if err != nil {
				t.Fatalf("%q: %v\n%s", text, err, c.YAML())
			}
			if reload, restart := Diff(c, again); len(reload)+len(restart) != 0 {
				t.Errorf("%q: %v %v differ:\n%s", text, reload, restart, c.YAML())
			}
		case !errors.As(err, &errs) || len(errs) == 0:
			t.Errorf("%q: %v", text, err)
		case !reflect.DeepEqual(c, Config{}):
			t.Errorf("%q is refused, but part of it was used: %+v", text, c)
		}
	})
}

var see = regexp.MustCompile(` See docs/([a-z-]+)\.md\.`)

// The reference is generated from the keys, so that it cannot be out of date.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("| key | scope | type | default | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range Keys() {
		value := k.shownDefault()
		if value != "" {
			value = "`" + value + "`"
		}
		reload := ""
		if k.Reload {
			reload = "\\*"
		}
		doc := see.ReplaceAllString(strings.ReplaceAll(k.Doc, "|", "\\|"), " ([$1]($1.md))")
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s | %s |\n", k.Name, reload, k.Scope, k.Kind, value, doc)
	}
	testhelper.CheckDocument(t, "../../docs/configuration.md", b.String())
}

func TestExampleLoads(t *testing.T) {
	c := mustLoad(t, Sources{File: "../../configs/zkelectd.yaml"})
	if c.Child.Command[0] != "/usr/bin/app" {
		t.Errorf("child: got %+v", c.Child)
	}
}

// Each wrong setting of the watchdog device is reported under its key.
func TestWatchdogDeviceIsChecked(t *testing.T) {
	good := WatchdogDevice{Mode: DeviceRequired, Device: "/dev/watchdog"}
	for want, change := range map[string]func(*WatchdogDevice){
		"":                       func(*WatchdogDevice) {},
		"watchdog_device.mode":   func(w *WatchdogDevice) { w.Mode = "on" },
		"watchdog_device.device": func(w *WatchdogDevice) { w.Device = "/dev/../etc/passwd" },
	} {
		c, got := defaults(), ""
		c.Device = good
		change(&c.Device)
		c.check(func(key, _ string, _ ...any) { got += key })
		if got != want {
			t.Errorf("%+v: %q", c.Device, got)
		}
	}
}

// lockOnly configures a group without leader-only work.
const lockOnly = "child: {none: true}\n"

// A daemon that would lead without any effect is refused, unless the configuration says that this is meant.
func TestNoWork(t *testing.T) {
	for text, refused := range map[string]bool{
		"{}": true, "node: {id: a}": true, "http: {listen: '127.0.0.1:0'}": true, "child: {command: []}": true, "health: {exec: [true]}": true,
		"child: {none: true}": false, "child: {command: [app]}": false, "child: {unit: app.service}": false, "node: {observer: true}": false,
		"hooks: {pre_start: [x]}": false, "hooks: {post_stop: [x]}": false, "hooks: {on_change: [x]}": false,
	} {
		path := file(t, text)
		for first, running := range map[bool]Host{true: {}, false: one(Config{}, path, "cluster")} {
			_, err := ReloadHost(Sources{File: path}, running, false)
			if got := err != nil; got != refused || got && !strings.Contains(err.Error(), path+": child.command: is not set, and neither are") {
				t.Errorf("%s (first: %t): %v", text, first, err)
			}
		}
		if _, err := Load(Sources{File: path}); err != nil { // commands read the same files
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"child: {none: true, command: [app]}", "child: {none: true, unit: app.service}"} {
		if _, err := Load(Sources{File: file(t, text)}); err == nil || !strings.Contains(err.Error(), "child.none: cannot be set together with") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Only the group without work is refused.
func TestNoWorkInAGroup(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "child: {command: [app]}", "b": "{}"})
	if got := summary(h.reload(Host{}, false)); got != "added [a] changed [] removed [] refused [b]" {
		t.Error(got)
	}
	h.setMain("defaults: {child: {command: [app]}}\n")
	if got := summary(h.reload(Host{}, false)); got != "added [a b] changed [] removed [] refused []" {
		t.Error(got)
	}
}

// The settings that say which group this is are named if no source sets them.
func TestUnset(t *testing.T) {
	for text, want := range map[string]string{
		"{}": "zookeeper.servers zookeeper.root", "zookeeper: {root: /cluster}": "zookeeper.servers", "zookeeper: {root: /x, servers: [a]}": "",
	} {
		src := Sources{File: file(t, text), Command: []string{"app"}}
		loaded, err := LoadHost(src)
		if got := strings.Join(loaded.Unset, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
		if r, err := ReloadHost(src, Host{}, false); err != nil || strings.Join(r.Host.Unset, " ") != want {
			t.Errorf("%s: a daemon: %q, %v", text, r.Host.Unset, err)
		}
	}
	if got := defaults().Setting("zookeeper.servers"); got != "127.0.0.1:2181" {
		t.Error(got)
	}
}

// A takeover may take as long as its hook and each part of the start of the work.
func TestATakeoverMayTakeAsLongAsItsParts(t *testing.T) {
	for given, want := range map[string]time.Duration{
		"child: {command: [x]}": 30 * time.Second,
		"child: {command: [x], ready: {timeout: 2m}}\nhooks: {timeout: 1s}": 121 * time.Second,
		"child: {unit: x.service, ready: {timeout: 18s}}":                   46 * time.Second,
	} {
		c := mustLoad(t, Sources{File: file(t, given+"\n")})
		if got := c.TakeoverTimeout(); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

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

func TestPromotionErrors(t *testing.T) {
	const orders = "child: {command: [a], promote: {exec: [b]}, demote: {http: 'http://127.0.0.1/d'}"
	const unit = "child: {unit: a.service, promote: {exec: [b]}, demote: {exec: [b]}"
	for text, want := range map[string]string{
		orders + "}": "",
		orders + ", warm: {tcp: '127.0.0.1:80'}, ready: {http: 'http://127.0.0.1/'}}": "",
		orders + "}\nslots: {count: 2, per_node: 1}":                                  "",
		orders + "}\nslots: {count: 2}":                                               "child.promote: needs slots.per_node: 1",
		orders + ", env: {A: '${ZKELECTD_SLOT}'}}\nslots: {count: 2, per_node: 1}":    "child.promote: the work contains ${ZKELECTD_SLOT}",
		orders + ", ready: {notify: true}}":                                           "child.ready.notify: cannot be set together with child.promote",
		orders + "}\nwatchdog_device: {mode: automatic}":                              "watchdog_device.mode: cannot be used together with child.promote",
		unit + "}": "",
		unit + "}\nslots: {count: 2, per_node: 1}": "",
		strings.ReplaceAll(unit, "a.service", "'a@${ZKELECTD_SLOT}.service'") + "}\nslots: {count: 2, per_node: 1}": "child.promote: the work contains ${ZKELECTD_SLOT}",
		unit + ", warm: {notify: true}}":                                 "child.warm.notify: cannot be set together with child.unit",
		orders + ", warm: {notify: true}}":                               "",
		"child: {command: [a], warm: {notify: true}}":                    "child.warm: has no effect",
		"child: {none: true, promote: {exec: [b]}, demote: {exec: [b]}}": "child.promote: needs child.command or child.unit",
		"child: {command: [a], promote: {exec: [b]}}":                    "child.promote and child.demote belong together",
	} {
		_, err := Load(Sources{File: file(t, text)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got  %v\nwant %s", text, err, want)
		}
	}
	if c := mustLoad(t, Sources{File: file(t, orders+", ready: {timeout: 5s}}")}); c.TakeoverTimeout() != 20*time.Second {
		t.Errorf("a takeover may take %s", c.TakeoverTimeout())
	}
}
