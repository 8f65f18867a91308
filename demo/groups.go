package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// groupsRoot is the znode above the roots of the groups in the last step of the tour.
const groupsRoot = "/fleet"

var groupNames = []string{"billing", "catalog", "email", "export", "fraud", "ingest", "ledger", "orders", "payout",
	"pricing", "reports", "search"}

// homes returns the node that is to lead the i-th group, and the one that leads it if the first is gone. The three
// groups of each node have three different second homes.
func homes(i int) (first, second node) {
	n := len(nodes)
	return nodes[i%n], nodes[(i+1+i/n%(n-1))%n]
}

func (f *fleet) groupsDir() string { return filepath.Join(f.dir, "groups.d") }

// configureGroups writes a file for each group and one for the resource with slots. All nodes read the same files.
func (f *fleet) configureGroups() error {
	if err := os.Mkdir(f.groupsDir(), 0o700); err != nil {
		return err
	}
	for i, name := range groupNames {
		first, second := homes(i)
		text := fmt.Sprintf(`child: {command: ["%s", child, --dir, "%s"]}
policy: {failback: immediate, rank: ['expr:member.id == "%s" ? 2 : member.id == "%s" ? 1 : 0', incumbent]}
`, f.opt.child, f.childDir(name), first.id, second.id)
		err := errors.Join(os.Mkdir(f.childDir(name), 0o700), os.WriteFile(filepath.Join(f.groupsDir(), name+".yaml"),
			[]byte(text), 0o600))
		if err != nil {
			return err
		}
	}
	return f.configureStream()
}

// childDir returns the directory for the addresses of a group's children.
func (f *fleet) childDir(group string) string { return filepath.Join(f.dir, "child-"+group) }

// configureHost writes the configuration file of a node that runs all groups.
func (f *fleet) configureHost(n node) error {
	text := fmt.Sprintf(`node: {id: %s, site: %s, priority: %d}
zookeeper: {servers: ["%s"], root: %s, session_timeout: 4s}
groups_dir: "%s"
defaults: {child: {ready: {notify: true}, stop_timeout: 1s}, election: {settle: 0s}}
http: {listen: "127.0.0.1:%d", token_file: "%s"}
`, n.id, n.site, n.priority, f.server.Addr(), groupsRoot, f.groupsDir(), f.ports[n.id], f.tokens())
	return os.WriteFile(f.file(n), []byte(text), 0o600)
}

// manyGroups restarts the four daemons with twelve groups each, drains a host, and returns it.
func (f *fleet) manyGroups(ctx context.Context) error {
	for _, p := range f.daemons {
		p.terminate()
	}
	for _, p := range f.daemons {
		p.wait(10 * time.Second)
	}
	if err := f.configureGroups(); err != nil {
		return err
	}
	for _, name := range groupNames {
		if err := store.Init(ctx, f.session, groupPaths(name), "the demo"); err != nil {
			return err
		}
	}
	began := time.Now()
	for _, n := range nodes {
		if err := f.start(n, f.configureHost); err != nil {
			return err
		}
	}
	if err := f.untilLed(ctx, func(i int) string { first, _ := homes(i); return first.id }); err != nil {
		return err
	}
	if err := f.untilSlotsAreEven(ctx, ""); err != nil {
		return err
	}
	f.say("   the four daemons, restarted with a file for each of twelve groups and for a resource with %d slots, "+
		"have a leader for each of them after %s\n",
		streamSlots, ms(time.Since(began)))
	if err := f.showGroups(ctx); err != nil {
		return err
	}
	return f.drainAndReturn(ctx, "n1")
}

// drainAndReturn moves all leaders away from a node, and back.
func (f *fleet) drainAndReturn(ctx context.Context, id string) error {
	began := time.Now()
	if out, err := f.command(ctx, "drain", id, "--wait", "--yes"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	f.say("\n   %s returns after %s: %s leads none: its three groups and its slot are on other hosts\n",
		cluster.InGroup("'zkelectd drain %s --wait'", "", id), ms(time.Since(began)), id)
	if err := f.untilSlotsAreEven(ctx, id); err != nil {
		return err
	}
	err := f.untilLed(ctx, func(i int) string {
		first, second := homes(i)
		if first.id == id {
			return second.id
		}
		return first.id
	})
	if err != nil {
		return err
	}
	if err := f.showGroups(ctx); err != nil {
		return err
	}
	began = time.Now()
	if out, err := f.command(ctx, "uncordon", id, "--yes"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := f.untilLed(ctx, func(i int) string { first, _ := homes(i); return first.id }); err != nil {
		return err
	}
	if err := f.untilSlotsAreEven(ctx, ""); err != nil {
		return err
	}
	f.say("\n   %s: %s after that it leads its three groups and a slot again\n",
		cluster.InGroup("'zkelectd uncordon %s'", "", id), ms(time.Since(began)))
	return f.showGroups(ctx)
}

// untilLed waits until each group is led by the node with the id that want returns for it, and checks that all children
// answer.
func (f *fleet) untilLed(ctx context.Context, want func(i int) string) error {
	for i, name := range groupNames {
		var g status.Group
		err := poll(ctx, func(ctx context.Context) (err error) {
			if g, err = f.readGroup(ctx, name); err == nil && (!f.leads(want(i))(g) || len(g.Members) != len(nodes)) {
				err = errors.New("not yet")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("group %s was not led by %s in time: %w; it is now:\n%s", name, want(i), err, g.Table())
		}
		if _, err := ask(ctx, f.childDir(name), g.Leader, g.Term); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
	}
	return nil
}

func groupPaths(name string) cluster.Paths { return cluster.Paths{Root: groupsRoot + "/" + name} }

func (f *fleet) readGroup(ctx context.Context, name string) (status.Group, error) {
	return f.read(ctx, name, groupPaths(name))
}

// showGroups prints the status of all groups.
func (f *fleet) showGroups(ctx context.Context) error {
	out, err := f.command(ctx, "status")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for line := range strings.Lines(indent(out)) {
		f.say("%s", strings.TrimRight(line, " \n"))
	}
	return nil
}

// command runs a command of zkelectd on all groups, and returns its output.
func (f *fleet) command(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, f.opt.zkelectd, append(args, f.access()...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("zkelectd %s failed: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}

// access returns the arguments with which commands find the groups.
func (f *fleet) access() []string { return []string{"--zk", f.server.Addr(), "--root", groupsRoot} }

// show prints the groups whenever a leader changes, until ctx ends.
func (f *fleet) show(ctx context.Context) error {
	f.say("\nThe fleet keeps running: try it from another terminal, and end it with Ctrl-C:")
	f.say("  http://127.0.0.1:%d/ is the page; requests there need the token %s", f.ports["n4"], f.token)
	f.say("  %s status %s", f.opt.zkelectd, strings.Join(f.access(), " "))
	f.say("  %s move -g billing --to n2 %s", f.opt.zkelectd, strings.Join(f.access(), " "))
	f.say("  kill -9 PID of a daemon, or edit a file in %s and kill -HUP the PID of a daemon\n", f.groupsDir())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last []string
	for {
		if leaders := f.leaders(ctx); !slices.Equal(leaders, last) {
			if err := f.showGroups(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			last = leaders
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.say("stopping the fleet")
			return nil
		}
	}
}

// leaders returns the leader of each group; the empty string if there is none.
func (f *fleet) leaders(ctx context.Context) (all []string) {
	for _, name := range groupNames {
		g, err := f.readGroup(ctx, name)
		if err != nil || g.State != string(cluster.CurrentReady) {
			g.Leader = ""
		}
		all = append(all, g.Leader)
	}
	return all
}
