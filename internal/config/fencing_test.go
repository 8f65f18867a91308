package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fenced loads a configuration with a section fencing.
func fenced(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zkelectd.yaml")
	write(t, path, "child: {command: [app]}\n"+text)
	return Load(Sources{File: path})
}

// One level needs no list.
func TestFencingByAnAgent(t *testing.T) {
	c, err := fenced(t, `fencing:
  levels:
    agent: fence_ipmilan
    options: {username: admin, lanplus: 1}
    secrets: {password: /etc/zkelectd/ipmi-password}
    nodes:
      n1: {ip: 192.0.2.1}
      n2: {ip: 192.0.2.2}
  timeout: 30s
  skip_wait: true
`)
	if err != nil {
		t.Fatal(err)
	}
	levels := c.Fencing.Levels
	want := FencingLevel{
		Agent: "fence_ipmilan", Options: map[string]string{"username": "admin", "lanplus": "1"},
		Secrets: map[string]string{"password": "/etc/zkelectd/ipmi-password"}, Nodes: Tables{"n1": {"ip": "192.0.2.1"}, "n2": {"ip": "192.0.2.2"}},
	}
	if len(levels) != 1 || !reflect.DeepEqual(levels[0], want) || c.Fencing.Timeout != 30*time.Second || !c.Fencing.SkipWait {
		t.Errorf("%+v", levels)
	}
}

func TestFencingLevels(t *testing.T) {
	c, err := fenced(t, `fencing:
  levels:
    - {agent: /opt/fence_own, nodes: {n1: {plug: "1"}}}
    - command: [/usr/local/bin/power-off, --hard]
`)
	if err != nil {
		t.Fatal(err)
	}
	levels := c.Fencing.Levels
	if len(levels) != 2 || levels[0].Agent != "/opt/fence_own" || levels[1].Command[1] != "--hard" {
		t.Errorf("%+v", levels)
	}
}

func TestBadFencingIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{levels: {agent: fence_x}}":                                                             "[0].nodes: is empty: name each node with its options",
		"{levels: {agent: ipmi, nodes: {n1: {}}}}":                                               `[0].agent: "ipmi" is neither the name of a fence agent`,
		"{levels: {agent: fence_x, command: [y], nodes: {n1: {}}}}":                              "cannot be set together with a command",
		"{levels: {command: [y], nodes: {n1: {ip: x}}}}":                                         "[0].nodes: belongs to an agent",
		"{levels: {command: ['']}}":                                                              "[0].command: the program, its first element, is empty",
		"{required: true}":                                                                       "fencing.required: has no effect",
		"{skip_wait: true}":                                                                      "fencing.skip_wait: has no effect",
		"{levels: {command: [y]}, timeout: 10m}":                                                 "fencing.timeout: 10m0s is not between 1s and 5m",
		"{levels: {agent: fence_x, options: {passwd: x}, nodes: {n1: {}}}}":                      "[0].options: passwd may be a secret",
		"{levels: {agent: fence_x, options: {action: on}, nodes: {n1: {}}}}":                     "action is an option that zkelectd sets",
		`{levels: {agent: fence_x, options: {ip: "a\nb"}, nodes: {n1: {}}}}`:                     "ip: an agent's option is one line",
		"{levels: {agent: fence_x, options: {a b: c}, nodes: {n1: {}}}}":                         "is not the name of an option",
		"{levels: {agent: fence_x, nodes: {a/b: {}}}}":                                           `"a/b" contains '/'`,
		"{levels: {agent: fence_x, nodes: {n1: x}}}":                                             "n1: must be a map",
		"{levels: {agent: fence_x, secrets: {password: ''}, nodes: {n1: {}}}}":                   "password names no file",
		"{levels: fence_x}":                                                                      "fencing.levels: must be one level",
		"{levels: [{agnt: fence_x}]}":                                                            `[0]: "agnt" is none of agent, command, nodes, options, secrets; did you mean agent?`,
		"{levels: [{}]}":                                                                         "[0].agent: is not set, and neither is a command",
		"{levels: [{command: [a]}, {agent: fence_x}]}":                                           "[1].nodes: is empty",
		"{levels: [{command: [a]},{command: [a]},{command: [a]},{command: [a]},{command: [a]}]}": "has 5 levels; at most 4",
	} {
		_, err := fenced(t, "fencing: "+text+"\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Levels can come from the environment, as YAML.
func TestFencingFromTheEnvironment(t *testing.T) {
	c, err := Load(Sources{Env: []string{"ZKELECTD_FENCING_LEVELS={agent: fence_x, nodes: {n1: {ip: 192.0.2.1}}}"}})
	if err != nil || len(c.Fencing.Levels) != 1 || c.Fencing.Levels[0].Nodes["n1"]["ip"] != "192.0.2.1" {
		t.Errorf("%+v, %v", c.Fencing, err)
	}
}
