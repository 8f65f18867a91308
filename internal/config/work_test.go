package config

import (
	"strings"
	"testing"
	"time"
)

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
