package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/support"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/sys/secretfile"
)

// writeSupport writes a new file with what a bug report needs; an empty name stands for one with the node and the time.
func writeSupport(ctx context.Context, out io.Writer, src config.Sources, file string) error {
	c := collection{checkup: newCheckup(src), at: time.Now().UTC()}
	c.facts = c.checkup.run(ctx)
	if file == "" {
		file = c.name() + ".tar.gz"
	}
	if err := c.write(ctx, file); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, line := range c.bundle.NotCollected() {
		fmt.Fprintln(out, "not collected:", printable(line))
	}
	_, err := fmt.Fprintf(out, "wrote %s; look through it before you send it\n", file)
	if err == nil && !c.bundle.Has("groups/", "daemon/", "processes/", "journal.txt") {
		err = fmt.Errorf("%s has nothing about a daemon or a group: run this on the host of a daemon, with its configuration, and as a user who may read that", file)
	}
	return err
}

// collection collects the files of a bundle.
type collection struct {
	*checkup
	bundle *support.Bundle
	at     time.Time
}

// fileName has the characters that a file's name may have.
var fileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func (c *collection) name() string {
	node := c.host.Config.Node.ID
	if node == "" {
		node = procinfo.Hostname()
	}
	return "zkelectd-support-" + fileName.ReplaceAllString(node, "_") + "-" + c.at.Format("20060102T150405Z")
}

// write writes the bundle to a new file that only this user can read.
func (c *collection) write(ctx context.Context, file string) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			os.Remove(file)
		}
	}()
	c.bundle = support.New(out, c.name(), c.at)
	c.hideSecrets()
	c.addHost()
	c.addGroups(ctx)
	c.addDaemon(ctx)
	c.addJournal(ctx)
	return c.bundle.Close(supportReadme)
}

const supportReadme = `This is what 'zkelectd doctor --support' has collected on one host, for a bug report. Secrets were left out. Names of nodes and hosts, reasons
that people gave, and log messages are in it: look through the files before you send them.`

// hideSecrets has the bundle remove what is in the files with secrets, should it appear anywhere.
func (c *collection) hideSecrets() {
	for _, g := range append([]config.Group{{Config: c.host.Config}}, c.host.Groups...) {
		for _, secret := range g.Config.Secrets() {
			c.bundle.Hide(secret)
		}
	}
	z, h := c.host.Config.ZooKeeper, c.host.Config.HTTP
	for _, name := range []string{z.Auth.File, z.TLS.Key, h.TokenFile, h.WebConfig} {
		if name == "" {
			continue
		}
		file, _ := config.SecretFile(name, os.Getenv)
		text, err := secretfile.Read(name, file, 0) // which waits for no FIFO
		if err != nil {
			continue // then nothing that this command reads can have it
		}
		for line := range strings.Lines(string(text)) {
			c.bundle.Hide(line)
			if _, secret, ok := strings.Cut(line, ":"); ok {
				c.bundle.Hide(secret)
			}
		}
	}
}

// addHost adds what is known about this host, and what doctor has found.
func (c *collection) addHost() {
	c.bundle.Text("version.txt", "the versions of zkelectd and of the kernel", []byte(c.versions()), nil)
	b := c.bundle
	if c.facts.Config.Usable {
		b.Text("config.yaml", "the settings of the host, without what may be secret", []byte(redacted(c.host)), nil)
	} else {
		b.Missing("config.yaml", errors.New("the configuration is invalid: see doctor.txt"))
	}
	var text strings.Builder
	err := diagnosed(c.facts).print(&text, "table")
	b.Text("doctor.txt", "the output of doctor", []byte(text.String()), err)
}

func redacted(h config.Host) string {
	h.Config = h.Config.Redacted()
	return h.YAML()
}

func (c *collection) versions() string {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // it cannot fail
	system, _ := os.ReadFile("/etc/os-release")
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	return fmt.Sprintf("zkelectd %s\nLinux %s %s\nhost %s\ncollected at %s by %s\n\n%s", version(), unix.ByteSliceToString(kernel.Release[:]),
		unix.ByteSliceToString(kernel.Machine[:]), procinfo.Hostname(), c.at.Format(time.RFC3339), who, system)
}

// Limits of what is collected.
const (
	journalLines   = 5000
	collectTimeout = 20 * time.Second
)

// addGroups adds what ZooKeeper has about the groups.
func (c *collection) addGroups(ctx context.Context) {
	if !c.facts.Config.Usable {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	cfg := c.host.Config
	cfg.ZooKeeper.ConnectTimeout = serverTimeout
	s, err := connect(ctx, cfg, c.host.From)
	if err != nil {
		c.bundle.Missing("groups", err)
		return
	}
	defer operator.Disconnect(ctx, s)
	for _, one := range c.host.Groups {
		c.addGroup(ctx, groupAt(s, one.Config, one.Name, one.Config.ZooKeeper.Root))
	}
}

// addGroup adds one group.
func (c *collection) addGroup(ctx context.Context, g group) {
	dir := path.Join("groups", fileName.ReplaceAllString(g.name, "_"))
	add := func(name, what string, v any, err error) {
		var text strings.Builder
		if err == nil {
			err = printJSON(&text, v)
		}
		c.bundle.Text(path.Join(dir, name), what, []byte(text.String()), err)
	}
	c.bundle.Text(path.Join(dir, "config.yaml"), "the settings of the group, without what may be secret", []byte(g.cfg.Redacted().YAML()), nil)
	snap, err := g.read(ctx)
	add("policy.json", "the policy in force", snap.Policy.Record, err)
	add("requests.json", "the requests of operators", snap.Control.Record, err)
	acls, err := g.tree(ctx)
	add("acl.json", "the ACLs of the znodes; passwords appear as short hashes", acls, err)
	leaders := g.summaries(ctx)
	add("status.json", "the status, of each slot if there are several", leaders, nil)
	histories := make(map[string]cluster.History)
	for _, leader := range leaders {
		paths := cluster.Paths{Root: g.paths.Root, Slot: leader.Slot}
		if histories[leader.Name], err = operator.ReadHistory(ctx, g.session, paths, false); err != nil {
			break
		}
	}
	add("history.json", "the last terms, of each slot if there are several", histories, err)
}

// addDaemon adds what the daemon of this host answers, and what the kernel says about its processes.
func (c *collection) addDaemon(ctx context.Context) {
	pid := c.facts.Daemon.Pid
	if pid == 0 {
		c.bundle.Missing("daemon", errors.New("it was not found here: see doctor.txt"))
		return
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // without them, the guard's are missing
	for _, p := range append([]string{strconv.Itoa(pid)}, strings.Fields(string(children))...) {
		for _, name := range []string{"limits", "cgroup", "status"} {
			data, err := os.ReadFile(filepath.Join("/proc", p, name))
			c.bundle.Text("processes/"+p+"-"+name+".txt", "from /proc: the guard or one of its children", data, err)
		}
	}
	endpoint, err := endpointOf(c.host)
	switch {
	case err == nil && endpoint.Addr == "":
		c.bundle.Missing("daemon", errors.New("http.listen is not set"))
		return
	case err != nil:
		c.bundle.Missing("daemon", err)
		return
	}
	for name, url := range map[string]string{"metrics.txt": "/metrics", "groups.json": "/v1/groups", "status.json": "/v1/status"} {
		if name == "status.json" && len(c.host.Groups) > 1 {
			continue // each group has its own
		}
		asking, cancel := context.WithTimeout(ctx, localTimeout)
		body, err := endpoint.Read(asking, url, maxAnswer)
		cancel()
		c.bundle.Text("daemon/"+name, "the daemon's answer to "+url, body, err)
	}
}

// addJournal adds the end of the daemon's log. What its child has written is left out: it may have printed secrets.
func (c *collection) addJournal(ctx context.Context) {
	unit := "zkelectd"
	if pid := c.facts.Daemon.Pid; pid != 0 {
		unit = cmp.Or(procinfo.Unit(pid), unit)
	}
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, "journalctl", "--unit", unit, "_COMM=zkelectd", "--lines", strconv.Itoa(journalLines),
		"--no-pager", "--quiet", "--output", "short-iso-precise").Output() // not quiet, it prints that there are no entries
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("the journal has nothing of the unit %s that this user may read", unit)
	}
	c.bundle.Text("journal.txt", "the end of the daemon's log in the journal", text, err)
}
