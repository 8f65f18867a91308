package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// The figures of a host with many groups, each compared with a host with one group in the same run.
const (
	manyGroups   = 200
	groupsBase   = "/fleet" // the znode above the roots of the groups
	groupTimeout = 6 * time.Second
	groupSpan    = 20 * time.Second // of each measurement of idle daemons
)

// groups measures what further groups cost a host.
func groups(ctx context.Context, t *table, binary string) error {
	for _, part := range []func(context.Context, *table, string) error{idleGroups, killedGroups} {
		if err := part(ctx, t, binary); err != nil {
			return err
		}
	}
	return nil
}

// hosts are daemons with the same groups.
type hosts struct {
	*group
	binary string
	dir    string
	names  []string // of the groups
	nodes  map[string]*node
}

// startHosts starts a server, and creates groups that have no leader yet.
func startHosts(ctx context.Context, binary string, groups int) (*hosts, error) {
	g, err := newGroup(ctx, production)
	if err != nil {
		return nil, err
	}
	h := &hosts{group: g, binary: binary, nodes: make(map[string]*node)}
	if h.dir, err = os.MkdirTemp("", "zkelectd-bench-"); err != nil {
		h.close()
		return nil, err
	}
	for i := range groups {
		name := fmt.Sprintf("g%03d", i)
		if err := store.Init(ctx, g.session, h.of(name).paths, "the benchmark"); err != nil {
			h.close()
			return nil, err
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

func (h *hosts) close() {
	for _, n := range h.nodes {
		n.kill()
	}
	h.group.close()
	os.RemoveAll(h.dir)
}

// of returns one of the groups, to observe it.
func (h *hosts) of(name string) *group {
	return &group{server: h.server, session: h.session, paths: cluster.Paths{Root: groupsBase + "/" + name}}
}

// start starts a host, and waits until it is a member of all groups. settings are further settings of the host.
func (h *hosts) start(ctx context.Context, id, settings string) error {
	if err := os.Mkdir(h.groupsDir(id), 0o700); err != nil {
		return err
	}
	for _, name := range h.names {
		if err := h.write(id, name, "{}"); err != nil {
			return err
		}
	}
	file := filepath.Join(h.dir, id+".yaml")
	text := fmt.Sprintf(`node: {id: %s, site: %s}
zookeeper: {servers: ["%s"], root: %s, session_timeout: %s}
groups_dir: %s
defaults: {child: {command: [sleep, "100000"], stop_timeout: 100ms}, policy: {failback: manual}}
log: {level: error}
`, id, id, h.server.Addr(), groupsBase, groupTimeout, h.groupsDir(id))
	if err := os.WriteFile(file, []byte(text+settings), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(h.binary, "run", "--config", file)
	if *verbose {
		cmd.Stderr = os.Stderr
	} else {
		cmd.Stderr = slowLog{}
	}
	h.nodes[id] = &node{cmd}
	if err := cmd.Start(); err != nil {
		return err
	}
	return h.joined(ctx, len(h.nodes))
}

func (h *hosts) groupsDir(id string) string { return filepath.Join(h.dir, id+".d") }

// write writes the file of a group on a host.
func (h *hosts) write(id, name, text string) error {
	return os.WriteFile(filepath.Join(h.groupsDir(id), name+".yaml"), []byte(text+"\n"), 0o600)
}

// joined waits until n hosts are members of all groups.
func (h *hosts) joined(ctx context.Context, n int) error {
	for _, name := range h.names {
		if err := h.of(name).members(ctx, n); err != nil {
			return fmt.Errorf("group %s has no %d members: %w", name, n, err)
		}
	}
	return nil
}

// led waits until a host leads all groups.
func (h *hosts) led(ctx context.Context, id string) error {
	for _, name := range h.names {
		if err := h.of(name).leads(ctx, id); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
	}
	return nil
}

// sessionOf returns the session of a host, in which it is a member of all groups.
func (h *hosts) sessionOf(ctx context.Context, id string) (int64, error) {
	_, stat, err := h.session.Get(ctx, h.of(h.names[0]).paths.Node(id), false)
	return stat.Owner, err
}

// slowLog is a reader of a daemon's log that takes 4 MB a second at most, as a busy journal does.
type slowLog struct{}

func (slowLog) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / (4 << 20))
	return len(p), nil
}
