package config

import (
	"fmt"
	"strings"
	"time"

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
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		if comment != nil {
			node.HeadComment = comment(k)
		}
		s := section(sections, path)
		s.Content = append(s.Content, node, marshal(settings[k.Name]))
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
	text, _ := yaml.Marshal(marshal(v)) // never fails: all settings are plain values
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

// ManualPage returns zkelectd.yaml(5), the manual page of the configuration file, for man.
func ManualPage(date time.Time) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`.TH "ZKELECTD.YAML" "5" "%s" "zkelectd" "zkelectd"`, date.UTC().Format("Jan 2006"))
	p(".SH NAME\nzkelectd.yaml \\- configuration of zkelectd")
	p(".SH DESCRIPTION\n%s", roff(manualIntroduction))
	p(".SH SETTINGS")
	section := ""
	for _, k := range Keys() {
		if name, _, _ := strings.Cut(k.Name, "."); name != section {
			section = name
			p(".SS %s", roff(name))
		}
		about := []string{string(k.Kind)}
		if value := k.shownDefault(); value != "" {
			about = append(about, "default: "+value)
		}
		about = append(about, "scope: "+string(k.Scope))
		if k.Reload {
			about = append(about, "applied by a reload")
		}
		p(".TP\n\\fB%s\\fP (%s)\n%s", roff(k.Name), roff(strings.Join(about, "; ")), roff(k.Doc))
	}
	p(".SH EXAMPLE\n.nf\n%s.fi", roff(manualExample))
	p(".SH FILES\n.TP\n%s\nthe file that the unit of the package uses\n.TP\n%s\nthe directory for the files of groups",
		roff("/etc/zkelectd.yaml"), roff("/etc/zkelectd.d"))
	p(".SH SEE ALSO\n\\fBzkelectd(1)\\fP, \\fBzkelectd\\-run(1)\\fP, \\fBzkelectd\\-check(1)\\fP, \\fBzkelectd\\-reload(1)\\fP")
	return b.String()
}

const manualIntroduction = `The file is YAML. A name with dots below is a setting in sections: node.id is "node: {id: n1}". A setting that is left out has its ` +
	`default. Each can also be set by an environment variable, ZKELECTD_ and the name in capitals with _ for each dot, as ZKELECTD_NODE_ID, which ` +
	`overrides the file; a flag of the command run overrides both. A setting that does not exist is an error. "zkelectd check" reports all errors ` +
	`of a file, and with --print the settings in force.

With groups_dir, a daemon has many groups. Settings with the scope host are then in the main file, and those with the scope group in the file ` +
	`of the group, or in the section defaults of the main file. Documents such as docs/policies.md are in /usr/share/doc/zkelectd.`

const manualExample = `node: {site: dc1}
zookeeper:
  servers: [zk1:2181, zk2:2181, zk3:2181]
  root: /cluster
policy: {sites: {dc1: 200, dc2: 100}}
child: {command: [/usr/bin/app, --serve]}
`

// roff returns a text for man, which takes some characters for commands.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "", "\n.", "\n\\&.", "\n'", "\n\\&'", "\n\n",
		"\n.PP\n").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
