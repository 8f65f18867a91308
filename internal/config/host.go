package config

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/suggest"
)

// Host is the configuration of a daemon with all its groups.
type Host struct {
	// Config has the settings of the host; for a daemon with one group, those of the group as well.
	Config Config
	// Dir is the directory with the group files; empty for a daemon with one group.
	Dir string
	// Groups are sorted by name. Without Dir there is exactly one.
	Groups []Group
	// Warnings name files in Dir that were ignored.
	Warnings []string
	// Unset lists the settings that say which group this is, and that no source sets.
	Unset []string
	// From describes the sources of the configuration; zero for that of a daemon.
	From From
}

// From describes where the settings of a command's connection come from.
type From struct {
	// File is the configuration file; empty if none is used.
	File     string
	settings map[string]found
}

// Source returns the source of a setting: a flag, a variable of the environment, a line of a file; empty if it is a
// default.
func (f From) Source(key string) string { return f.settings[key].source }

// Group is the complete configuration of one group: the settings of the host, the defaults, and its own.
type Group struct {
	Name string
	// File is the group's file; empty if there is none.
	File   string
	Config Config
}

// Group returns the configuration of a group.
func (h Host) Group(name string) (Config, bool) {
	g := h.find(name)
	if g == nil {
		return Config{}, false
	}
	return g.Config, true
}

func (h Host) find(name string) *Group {
	i, found := slices.BinarySearchFunc(h.Groups, name,
		func(g Group, name string) int { return strings.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &h.Groups[i]
}

// one returns the configuration of a daemon with one group.
func one(cfg Config, file, name string) Host {
	return Host{Config: cfg, Groups: []Group{{Name: name, File: file, Config: cfg}}}
}

// LoadHost reads, merges and checks the sources, with the files of all groups. If it fails, the error is [Errors], with
// all errors of all files, and Host is zero.
func LoadHost(src Sources) (Host, error) {
	m := readMain(src)
	if m.dir == "" {
		if len(m.errs) > 0 {
			return Host{}, m.errs
		}
		h := one(m.cfg, src.File, cluster.NameOf(m.cfg.ZooKeeper.Root))
		h.Unset, h.From = m.unset(), From{src.File, m.settings}
		return h, nil
	}
	d := m.readGroups()
	d.checkFound(m.dir)
	errs := append(m.errs, d.allErrors()...)
	if len(errs) > 0 {
		return Host{}, unique(errs)
	}
	h := d.host(m)
	h.From = From{src.File, m.settings}
	return h, nil
}

// readGroups reads all group files, for a command or a first start.
func (m *mainFile) readGroups() *directory {
	d := m.readDir()
	d.refuseConflicts(m.cfg.ZooKeeper.Root, Host{})
	d.refuseCircles(Host{})
	return d
}

// allErrors returns the errors of the directory and of its files.
func (d *directory) allErrors() Errors {
	errs := d.errs
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		errs = append(errs, d.files[name].errs...)
	}
	return errs
}

// unique removes repeated errors: a fault of the main file is one of each group.
func unique(errs Errors) Errors {
	seen := make(map[Error]bool)
	return slices.DeleteFunc(errs, func(e Error) bool {
		repeated := seen[e]
		seen[e] = true
		return repeated
	})
}

// mainFile is what a daemon's main file, environment and flags say.
type mainFile struct {
	src      Sources
	settings map[string]found
	defaults map[string]found
	// dir is the directory with the group files; empty for one group.
	dir  string
	cfg  Config
	errs Errors
}

const groupsDir = "groups_dir"

// readMain reads the main file, the environment and the flags.
func readMain(src Sources) *mainFile {
	m := &mainFile{src: src, settings: make(map[string]found)}
	if src.File != "" {
		content := src.Content
		if content == nil {
			content = readFile(src.File, &m.errs)
		}
		if content != nil { // otherwise it is known why
			m.settings, m.defaults = parseFile(src.File, content, &m.errs)
		}
	}
	all := readLayers(src, m.settings, &m.errs)
	all.refuseStrangers(src, &m.errs)
	m.settings = all.merged()
	if len(src.Command) > 0 {
		m.settings["child.command"] = found{"command line", src.Command}
	}
	m.dir, _ = m.settings[groupsDir].value.(string)
	m.checkScopes()
	cfg, err := merged(m.settings)
	if err != nil {
		m.errs.add("", "", "%v", err)
	}
	m.cfg = cfg
	m.cfg.completeDefaults(m.settings)
	m.cfg.checkWith(m.settings, "", &m.errs)
	m.cfg.refuseRules(m.settings, "", &m.errs)
	m.errs = m.errs.sorted()
	return m
}

// checkScopes reports settings of groups in the wrong place, and removes them.
func (m *mainFile) checkScopes() {
	if m.dir == "" {
		for name, f := range m.defaults {
			m.errs.add(f.source, defaultsSection+"."+name, "has no effect without groups_dir: write it outside of defaults")
		}
		return
	}
	if !filepath.IsAbs(m.dir) || filepath.Clean(m.dir) != m.dir {
		m.errs.add(m.settings[groupsDir].source, groupsDir, "%q is not a clean absolute path", m.dir)
	}
	places := "in " + filepath.Join(m.dir, "NAME.yaml")
	if m.src.File != "" {
		places = "under defaults in " + m.src.File + ", or " + places
	}
	for name, k := range keysByName() {
		if f, set := m.settings[name]; set && k.Scope == GroupScope {
			m.errs.add(f.source, name, "is a setting of a group: write it %s", places)
			delete(m.settings, name)
		}
	}
}

// checkWith checks c, which was merged from values. An error in a default has the source of the file, if that can
// change it.
func (c *Config) checkWith(values map[string]found, file string, errs *Errors) {
	keys := keysByName()
	c.check(func(key, format string, args ...any) {
		source := values[key].source
		if source == "" && file != "" && keys[key].Scope != HostScope {
			source = file
		}
		errs.add(cmp.Or(source, "default"), key, format, args...)
	})
}

// MaxGroups limits the groups of a host.
const MaxGroups = 1000

// groupName matches what can be part of a znode path, a metric label and a unit name.
var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// groupExt is the extension of group files. Files with otherExt are refused: they are meant to be group files.
const (
	groupExt = ".yaml"
	otherExt = ".yml"
)

// claims are what only one group of a host can have: its znodes and its unit.
type claims struct {
	base   string // the znode above the roots of the groups
	znodes []claim
	unit   map[string]string // the group of each systemd unit
}

// claim is a znode, with a slash at its end, that belongs to a group.
type claim struct{ znode, group string }

// of returns what a group claims: its root, and the znode that records which root it has.
func (c *claims) of(g Group) []claim {
	return []claim{{g.Config.ZooKeeper.Root + "/", g.Name}, {path.Join(c.base, g.Name) + "/", g.Name}}
}

func (c *claims) add(g Group) {
	c.znodes = append(c.znodes, c.of(g)...)
	for _, unit := range g.Config.units() {
		c.unit[unit] = g.Name
	}
}

// Conflicts reports whether a group claims a znode or a systemd unit that one of the host's groups has.
func (h Host) Conflicts(g Group) bool {
	c := claims{base: h.Config.ZooKeeper.Root, unit: make(map[string]string)}
	for _, other := range h.Groups {
		c.add(other)
	}
	return len(c.check(g)) > 0
}

// conflict is a setting that a group cannot have.
type conflict struct{ key, reason string }

// check returns the conflicts of a group with those that were added.
func (c *claims) check(g Group) (found []conflict) {
	if reason := c.checkRoot(g); reason != "" {
		found = append(found, conflict{"zookeeper.root", reason})
	}
	units := g.Config.units()
	if i := slices.IndexFunc(units, func(unit string) bool { return c.unit[unit] != "" }); i >= 0 {
		found = append(found, conflict{"child.unit", fmt.Sprintf("%q is the unit of group %s, too", units[i],
			c.unit[units[i]])})
	}
	return found
}

func (c *claims) checkRoot(g Group) string {
	root := g.Config.ZooKeeper.Root
	switch {
	case c.base == root, strings.HasPrefix(c.base, root+"/"):
		return fmt.Sprintf("%q contains the zookeeper.root of the host, %q", root, c.base)
	case strings.HasPrefix(root, c.base+"/."):
		return fmt.Sprintf("%q is reserved: names below the zookeeper.root of the host do not begin with a dot", root)
	}
	for _, own := range c.of(g) {
		for _, other := range c.znodes {
			switch znode, taken := strings.TrimSuffix(own.znode, "/"), strings.TrimSuffix(other.znode, "/"); {
			case znode == taken:
				return fmt.Sprintf("%q belongs to group %s, too", znode, other.group)
			case strings.HasPrefix(taken, own.znode):
				return fmt.Sprintf("%q contains a znode of group %s", znode, other.group)
			case strings.HasPrefix(znode, other.znode):
				return fmt.Sprintf("%q is inside %q, which belongs to group %s", znode, taken, other.group)
			}
		}
	}
	return ""
}

// refuseConflicts adds an error to each file whose group conflicts with another one. A group that runs keeps what it
// has; otherwise the first name does.
func (d *directory) refuseConflicts(base string, running Host) {
	for refused := true; refused; {
		refused = false // what a refused group keeps may conflict with a change of another one
		c := claims{base: base, unit: make(map[string]string)}
		var changes []*groupFile
		for _, name := range slices.Sorted(maps.Keys(d.files)) {
			f, now := d.files[name], running.find(name)
			switch {
			case now != nil && (len(f.errs) > 0 || slices.Equal(now.Config.units(), f.cfg.units())):
				c.add(*now)
			case len(f.errs) == 0:
				changes = append(changes, f)
			}
		}
		for _, f := range changes {
			g := Group{Name: f.name, Config: f.cfg}
			found := c.check(g)
			for _, x := range found {
				f.errs.add(f.values[x.key].source, x.key, "%s", x.reason)
			}
			if refused = refused || len(found) > 0; len(found) == 0 {
				c.add(g)
			}
		}
	}
}

// relations returns the groups that a group's policy refers to. For a slot, that is its group.
func relations(c Config) policy.Relations {
	r := policy.RelationsOf(c.Rules())
	for _, list := range [][]string{r.With, r.Apart} {
		for i, peer := range list {
			list[i], _, _ = strings.Cut(peer, "/")
		}
	}
	return r
}

// UnknownGroups returns a warning for each group that a policy refers to, and that is not in the directory: it may be
// mistyped, and has no effect on this host.
func (h Host) UnknownGroups(rules cluster.Rules) (warnings []string) {
	if h.Dir == "" {
		return nil // a command may know nothing of other groups
	}
	var known []string
	for _, g := range h.Groups {
		known = append(known, g.Name)
	}
	for _, peer := range policy.RelationsOf(rules).Peers() {
		if name := cluster.GroupOf(peer); !slices.Contains(known, name) {
			warnings = append(warnings, fmt.Sprintf("the policy names the group %s, which this host does not have%s",
				name, suggest.DidYouMean(name, known)))
		}
	}
	return warnings
}

// refuseCircles adds an error to each file whose group follows one that refers back to it. A group whose policy has not
// changed is not to blame.
func (d *directory) refuseCircles(running Host) {
	for refused := true; refused; {
		refused = false // what a refused group keeps may be part of another circle
		graph, changed := make(policy.Graph), make(map[string]*groupFile)
		for name, f := range d.files {
			now := running.find(name)
			switch {
			case len(f.errs) == 0:
				graph[name] = relations(f.cfg)
				if now == nil || !reflect.DeepEqual(relations(now.Config), graph[name]) {
					changed[name] = f
				}
			case now != nil:
				graph[name] = relations(now.Config)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if err := checkCircle(graph, name); err != nil {
				f, key := changed[name], "policy.rank"
				if len(policy.RelationsOf(cluster.Rules{Rank: f.cfg.Policy.Rank}).Peers()) == 0 {
					key = "policy.apart_strict"
				}
				f.errs.add(f.values[key].source, key, "%v", err)
				refused = true
			}
		}
	}
}

// checkCircle returns an error if the group is in a circle in which a group follows another one.
func checkCircle(graph policy.Graph, name string) error {
	if len(graph[name].Peers()) == 0 {
		return nil
	}
	for _, other := range slices.Sorted(maps.Keys(graph)) {
		if other != name && (graph.Cycle(name, other) == nil || graph.Cycle(other, name) == nil) {
			continue // not in a circle with it
		}
		if err := graph.CheckWith(other); err != nil {
			return err
		}
	}
	return nil
}
