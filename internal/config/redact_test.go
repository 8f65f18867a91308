package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestRedacted(t *testing.T) {
	t.Parallel()
	c := Config{}
	c.Child.Command = []string{"/usr/bin/app", "--password=marker"}
	c.Child.Env = map[string]string{"TOKEN": "marker"}
	c.Hooks.PreStart = []string{"hook", "marker"}
	c.Health.HTTP = "http://user:marker@localhost:8080/health?key=marker"
	c.ZooKeeper.Servers = []string{"zk1:2181"}
	before := c.YAML()
	text := c.Redacted().YAML()
	for _, want := range []string{"/usr/bin/app", "TOKEN", "hook", "http://not-shown@localhost:8080/health?not-shown", "zk1:2181"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "marker") {
		t.Errorf("secrets are shown:\n%s", text)
	}
	if got := strings.Join(c.Secrets(), " "); strings.Count(got, "marker") != 6 {
		t.Errorf("secrets: %s", got)
	}
	if c.YAML() != before {
		t.Error("the configuration itself was changed")
	}
}

// Every program of the configuration is one whose arguments are not shown.
func TestArgumentsOfAllProgramsAreRedacted(t *testing.T) {
	t.Parallel()
	var c Config
	for key, f := range c.fields() {
		lists := []string{"zookeeper.servers", "policy.rank", "policy.filter", "policy.apart_strict", "http.allowed_hosts"}
		if _, ok := f.Interface().([]string); ok && !contained(lists, key) {
			f.Set(reflect.ValueOf([]string{"program", "marker"}))
		}
	}
	if text := c.Redacted().YAML(); strings.Contains(text, "marker") || !strings.Contains(text, "program") {
		t.Errorf("arguments are shown:\n%s", text)
	}
}

func contained(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
