package config

import (
	"fmt"
	"strings"
	"time"
)

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
	p(".SH FILES\n.TP\n%s\nthe file that the unit of the package uses\n.TP\n%s\nthe directory for the files of groups", roff("/etc/zkelectd.yaml"), roff("/etc/zkelectd.d"))
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
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "", "\n.", "\n\\&.", "\n'", "\n\\&'", "\n\n", "\n.PP\n").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
