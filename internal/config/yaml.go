package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the whole configuration as YAML, which loads as the same configuration.
func (c Config) YAML() string {
	return yamlOf(c.settings(), nil, func(key string) bool { return !c.Policy.LeftToGroup() || !onlyOfRules(key) })
}

// YAML returns the settings of the host as YAML; for a daemon with one group, all of them.
func (h Host) YAML() string {
	if h.Dir == "" {
		return h.Config.YAML()
	}
	keys := keysByName()
	return yamlOf(h.Config.settings(), nil, func(key string) bool { return keys[key].Scope != GroupScope })
}

// yamlOf returns settings as YAML. comment, if it is not nil, returns the comment in front of a setting.
func yamlOf(settings map[string]any, comment func(Key) string, wanted func(key string) bool) string {
	root := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": root}
	for _, k := range Keys() {
		if !wanted(k.Name) {
			continue
		}
		path, name := "", k.Name
		if i := strings.LastIndexByte(k.Name, '.'); i >= 0 {
			path, name = k.Name[:i], k.Name[i+1:]
		}
		value, err := marshal(settings[k.Name])
		if err != nil {
			continue // cannot happen: all settings are plain values
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		if comment != nil {
			node.HeadComment = comment(k)
		}
		s := section(sections, path)
		s.Content = append(s.Content, node, value)
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.Encode(root)
	e.Close()
	return b.String()
}

// inline returns a value as YAML on one line.
func inline(v any) string {
	n, err := marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func section(sections map[string]*yaml.Node, path string) *yaml.Node {
	if s, ok := sections[path]; ok {
		return s
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	s := &yaml.Node{Kind: yaml.MappingNode}
	p := section(sections, parent)
	p.Content = append(p.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, s)
	sections[path] = s
	return s
}

// shownDefault returns the default for readers on any host, who have other names than this one.
func (k Key) shownDefault() string {
	if k.Name == "node.id" {
		return ""
	}
	return shown(k.Default)
}

// shown returns a default as the reference and --help show it.
func shown(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case string:
		return v
	}
	if empty(v) {
		return ""
	}
	return fmt.Sprint(v)
}
