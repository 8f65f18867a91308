package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// root is the root of the only group, or the znode above the roots of several.
const root = "/faults"

// group is a group of a fleet. Its children write one ledger.
type group struct {
	f        *fleet
	name     string
	paths    cluster.Paths
	sites    map[string]int
	revision int // of the policy
	failsafe bool
}

// addGroups creates the groups of a fleet. The best site of every second group is dc2.
func (f *fleet) addGroups(n int) {
	for i := range n {
		g := &group{f: f, name: filepath.Base(root), paths: cluster.Paths{Root: root}, sites: map[string]int{"dc1": 2 - i%2, "dc2": 1 + i%2}}
		g.failsafe = f.failsafe && i < n-1
		if n > 1 {
			g.name = fmt.Sprintf("g%02d", i+1)
			g.paths.Root = root + "/" + g.name
		}
		if err := os.Mkdir(g.file(""), 0o700); err != nil {
			f.t.Fatal(err)
		}
		g.write(forkScript, []byte(forkText))
		f.groups = append(f.groups, g)
	}
}

// file returns the path of a file of the group.
func (g *group) file(name string) string { return g.f.file(filepath.Join(g.name, name)) }

func (g *group) write(name string, data []byte) { g.f.write(filepath.Join(g.name, name), data) }

func (g *group) ledger() string { return g.file("ledger") }

func (f *fleet) anyGroup() *group { return f.groups[f.rng.IntN(len(f.groups))] }

// leader returns the node on which the group's child runs; any node if there is none.
func (g *group) leader() *node {
	for _, n := range g.f.nodes {
		if n.child(g) != 0 {
			return n
		}
	}
	return g.f.anyNode()
}

// working returns the node on which the group's child runs, once there is one: on a busy machine the lease of a leader may have ended.
func (g *group) working() (n *node) {
	g.f.t.Helper()
	g.poll("a running child", func(string) bool {
		n = g.leader()
		return n.child(g) != 0
	})
	return n
}

// victim returns the leader in most cases, or any node.
func (g *group) victim() *node {
	if g.f.rng.Float64() < 0.6 {
		return g.leader()
	}
	return g.f.anyNode()
}

// configure writes all configuration files of a node.
func (n *node) configure() {
	var servers []string
	for _, p := range n.proxies {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", p.Port()))
	}
	if n.byName {
		servers = []string{fmt.Sprintf("%s:%d", serversName, n.proxies[0].Port())}
	}
	session, least, further := sessionTimeout, minSessionTimeout, ""
	if n.f.failsafe {
		session, least = outageSession, outageSession
		further = fmt.Sprintf(", acl: private, auth: {file: %s}", n.f.file(authFile))
	}
	host := fmt.Sprintf(`node: {id: %s, site: %s, priority: %d}
zookeeper: {servers: [%s], root: %s, session_timeout: %s, min_session_timeout: %s, session_file: %s%s}
log: {level: debug}
`, n.id, n.site, n.prio, strings.Join(servers, ", "), root, session, least, n.f.file(n.id+".session"), further)
	containment := fmt.Sprintf("containment: %s", n.containment)
	if len(n.f.groups) > 1 {
		if n.f.failsafe {
			host += fmt.Sprintf("failsafe: {listen: %s}\n", n.peer.address)
		}
		host += fmt.Sprintf("groups_dir: %s\nchild: {%s}\n", n.groupsDir(), containment)
		if err := os.MkdirAll(n.groupsDir(), 0o700); err != nil {
			n.f.t.Fatal(err)
		}
		for _, g := range n.f.groups {
			n.f.write(n.groupFile(g), []byte(n.settings(g, "")))
		}
	} else {
		host += n.settings(n.f.groups[0], ", "+containment)
	}
	if n.fences {
		host += n.fencing()
	}
	n.f.write(n.id+".yaml", []byte(host))
}

func (n *node) groupsDir() string { return n.f.file(n.id + ".d") }

// groupFile returns the name of the file with a group's settings, if there are several groups.
func (n *node) groupFile(g *group) string { return filepath.Join(n.id+".d", g.name+".yaml") }

// settings returns the settings of a group, with further ones of its child. After a reload, its policy becomes that of the group.
func (n *node) settings(g *group, child string) string {
	role := childArgument
	if n.promotes {
		role, child = standbyArgument, child+n.promotion()
	}
	return fmt.Sprintf(`election: {settle: 0s, exclusion: 500ms}
hooks: {timeout: %s}
policy: {sites: {dc1: %d, dc2: %d}, failback: immediate, max_preemptions: 0}
failsafe: {enabled: %t}
child: {command: [%s, %s, %s], env: {LEDGER: %s}, stop_timeout: 300ms, ready: {timeout: %s}%s}
`, takeover/2, g.sites["dc1"], g.sites["dc2"], g.failsafe, self, role, g.name, g.ledger(), takeover/2, child)
}

// reload makes the daemon read its configuration.
func (n *node) reload() { signal(syscall.SIGHUP, n.pids()[guardProcess]...) }

// groupFaults affect the configuration of nodes with several groups.
var groupFaults = []fault{
	{"a group removed from a host, then added again", replaceGroupFile(func(f *fleet, from string) error {
		return os.Rename(f.file(from), f.file(from+".disabled"))
	})},
	{"a group file emptied", replaceGroupFile(func(f *fleet, file string) error { return os.Truncate(f.file(file), 0) })},
	{"a group file with errors", replaceGroupFile(func(f *fleet, file string) error {
		return os.WriteFile(f.file(file), []byte("child: {comand: [sleep]}\n"), 0o600)
	})},
	{"the directory of the group files vanishes", hideGroups},
}

// replaceGroupFile changes a group's file on a node, and later restores it. The daemon reloads each time.
func replaceGroupFile(change func(f *fleet, file string) error) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		g := f.anyGroup()
		n := g.victim()
		if err := change(f, n.groupFile(g)); err != nil {
			return nil, err
		}
		n.reload()
		return func() {
			f.write(n.groupFile(g), []byte(n.settings(g, "")))
			n.reload()
		}, nil
	}
}

// hideGroups renames the directory of a node's group files. The reload must be refused: absence is not removal.
func hideGroups(f *fleet) (func(), error) {
	n := f.victim()
	hidden := n.groupsDir() + ".hidden"
	if err := os.Rename(n.groupsDir(), hidden); err != nil {
		return nil, errNotPromised // it is hidden already
	}
	n.reload()
	return func() {
		if err := os.Rename(hidden, n.groupsDir()); err != nil {
			f.t.Error(err)
		}
		n.reload()
	}, nil
}

// changePolicy makes the other site the better one for a group, by a reload of one daemon.
func changePolicy(f *fleet) (func(), error) {
	g := f.anyGroup()
	g.revision++
	g.sites = map[string]int{"dc1": 1 + g.revision%3, "dc2": 1 + g.revision%2}
	n := f.anyNode()
	n.configure()
	n.reload()
	return noHeal, nil
}

// whyUnsettled returns what is missing for a stable state: the best member by the policy in force is READY, and its child runs.
// It returns the empty string for a stable state.
func (g *group) whyUnsettled(ctx context.Context) string {
	f := g.f
	snap, err := store.ReadAll(ctx, f.client(ctx), g.paths, false)
	switch {
	case err != nil:
		return err.Error()
	case !snap.Ready():
		return "no member is READY"
	case len(snap.Members) != len(f.present()):
		return fmt.Sprintf("%d of %d members are registered", len(snap.Members), len(f.present()))
	case g.failsafe && !asks(snap, len(f.present())-1):
		return "the leader does not ask all others for promises"
	case !snap.Policy.Readable():
		return "there is no policy"
	}
	if c := snap.Control.Record; snap.Control.Err != nil || c.Pause != nil || c.Move != nil || c.Reelect != nil || len(c.Cordons) > 0 {
		return fmt.Sprintf("requests are in force: %+v %v", c, snap.Control.Err)
	}
	in := policy.Input{
		Members: snap.Members, Incumbent: snap.Elected.Record.Incarnation, Excluded: make(map[string]string), Circumstances: snap.Elected.Record.Circumstances,
	}
	for _, x := range snap.Elected.Record.Exclusions {
		if !x.Expired {
			in.Excluded[x.Node] = x.Reason
		}
	}
	compiled, err := policy.New(snap.Policy.Record)
	if err != nil {
		return err.Error()
	}
	if best, ok := compiled.Rank(in).Best(); !ok || best.Name != snap.Elected.Record.Incarnation {
		return fmt.Sprintf("%s leads, the best is %s", snap.Elected.Record.Node, best.ID)
	}
	i := slices.IndexFunc(f.nodes, func(n *node) bool { return n.id == snap.Elected.Record.Node })
	if i >= 0 && f.nodes[i].child(g) == 0 {
		return "the leader has no child"
	}
	return ""
}
