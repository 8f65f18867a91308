package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Fencing configures how this host, as a candidate, switches off the node of a leader that was lost.
type Fencing struct {
	// Levels are tried in this order until one succeeds.
	Levels   []FencingLevel `yaml:"levels" doc:"How this host, as a candidate, switches off the node of a lost leader: one level, or a list, tried in this order until one succeeds. See docs/fencing.md."`
	Timeout  time.Duration  `yaml:"timeout" min:"1s" max:"5m" default:"1m" doc:"How long each level may take; from 1s to 5m."`
	Required bool           `yaml:"required" doc:"With true this host takes over from a lost leader only after that node was fenced. If that fails, it gives up, with a strike, and another node is elected."`
	SkipWait bool           `yaml:"skip_wait" doc:"With true the lease wait for a node ends when it was fenced. See docs/fencing.md."`
}

// FencingLevel is one way to fence nodes: a command or a fence agent.
type FencingLevel struct {
	Command []string `yaml:"command,omitempty"`
	Agent   string   `yaml:"agent,omitempty"`
	// Options are those of the agent, for all nodes; those of Nodes are for one. Secrets are options whose values are
	// in files.
	Options map[string]string `yaml:"options,omitempty"`
	Secrets map[string]string `yaml:"secrets,omitempty"`
	Nodes   Tables            `yaml:"nodes,omitempty"`
}

// Tables are maps by name.
type Tables = map[string]map[string]string

// maxLevels limits the levels.
const maxLevels = 4

// agentName matches the names of ClusterLabs' fence agents.
var agentName = regexp.MustCompile(`^fence_[A-Za-z0-9_.-]+$`)

// optionName matches the names of their options.
var optionName = regexp.MustCompile(`^[a-z][A-Za-z0-9_-]*$`)

// ownOptions are options that zkelectd sets.
var ownOptions = []string{"action", "option", "nodename"}

// secretOption matches the names of options whose values must not be in a configuration file.
var secretOption = regexp.MustCompile(`(?i)passw|secret|token|(^|_)key$|community`)

func (c *Config) checkFencing(report func(string, string, ...any)) {
	f := &c.Fencing
	if len(f.Levels) == 0 {
		for key, set := range map[string]bool{"fencing.required": f.Required, "fencing.skip_wait": f.SkipWait} {
			if set {
				report(key, "has no effect: set fencing.levels as well")
			}
		}
	}
	if len(f.Levels) > maxLevels {
		report("fencing.levels", "has %d levels; at most %d are possible", len(f.Levels), maxLevels)
	}
	for i, l := range f.Levels {
		l.check(func(name, format string, args ...any) {
			report("fencing.levels", "[%d].%s: %s", i, name, fmt.Sprintf(format, args...))
		})
	}
}

// check checks one level, and calls report with the name of the setting in it.
func (l FencingLevel) check(report func(string, string, ...any)) {
	switch {
	case len(l.Command) > 0 && l.Agent != "":
		report("agent", "cannot be set together with a command: write two levels")
	case l.Agent == "" && len(l.Command) == 0:
		report("agent", "is not set, and neither is a command")
	case len(l.Command) > 0:
		if l.Command[0] == "" {
			report("command", "the program, its first element, is empty")
		}
		for name, set := range map[string]bool{"options": len(l.Options) > 0, "secrets": len(l.Secrets) > 0,
			"nodes": len(l.Nodes) > 0} {
			if set {
				report(name, "belongs to an agent: a command receives the node as JSON and in its environment")
			}
		}
		return
	case !agentName.MatchString(filepath.Base(l.Agent)) || strings.Contains(l.Agent, "/") && !filepath.IsAbs(l.Agent):
		report("agent", "%q is neither the name of a fence agent, as in fence_ipmilan, nor an absolute path to one", l.Agent)
	}
	if l.Agent != "" && len(l.Nodes) == 0 {
		report("nodes", "is empty: name each node with its options, as in {n1: {ip: 192.0.2.1}}")
	}
	l.checkOptions(report)
}

func (l FencingLevel) checkOptions(report func(string, string, ...any)) {
	check := func(where, prefix string, options map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(options)) {
			value := options[name]
			switch {
			case !optionName.MatchString(name):
				report(where, "%s%q is not the name of an option", prefix, name)
			case slices.Contains(ownOptions, name):
				report(where, "%s%s is an option that zkelectd sets", prefix, name)
			case secretOption.MatchString(name) && where != "secrets" && !strings.HasSuffix(name, "_script"):
				report(where, "%s%s may be a secret: write it into a file of mode 0600, and name that in secrets, as "+
					"in {%s: /etc/zkelectd/fence-secret}", prefix, name, name)
			case strings.ContainsAny(value, "\n\r\x00"):
				report(where, "%s%s: an agent's option is one line", prefix, name)
			case where == "secrets" && value == "":
				report(where, "%s names no file", name)
			}
		}
	}
	check("options", "", l.Options)
	check("secrets", "", l.Secrets)
	for _, node := range slices.Sorted(maps.Keys(l.Nodes)) {
		if err := CheckName(node); err != nil {
			report("nodes", "%q %v", node, err)
		}
		check("nodes", node+": ", l.Nodes[node])
	}
	for name := range l.Secrets {
		if _, twice := l.Options[name]; twice {
			report("secrets", "%s is also in options", name)
		}
	}
}

// tablesOf returns the maps in a YAML node.
func tablesOf(n *yaml.Node) (Tables, error) {
	all := make(Tables)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return all, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, errors.New("must be a map of maps, as in {n1: {ip: 192.0.2.1}}")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%q is given twice", name)
		}
		v, err := fromNode(texts, n.Content[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name], _ = v.(map[string]string)
	}
	return all, nil
}

// levelsOf returns the fencing levels in a YAML node: a list of them, or the only one.
func levelsOf(n *yaml.Node) ([]FencingLevel, error) {
	const wrong = "must be a map with command, or with agent, options, secrets and nodes"
	switch n.Kind {
	case yaml.MappingNode:
		l, err := structOf[FencingLevel](n, wrong)
		return []FencingLevel{l}, err
	case yaml.SequenceNode:
		return structsOf[FencingLevel](n, wrong)
	}
	return nil, errors.New("must be one level, as in {agent: fence_ipmilan, nodes: {n1: {ip: 192.0.2.1}}}, or " +
		"a list of them")
}
