package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/zkserver"
)

// desk is a host from which a person operates groups: with a home directory, and with a configuration file of the host's daemon.
type desk struct {
	t    *testing.T
	dir  string
	host string // the configuration file
	env  []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := t.TempDir()
	return &desk{t: t, dir: dir, host: filepath.Join(dir, "etc.yaml")}
}

// write writes a file in the home directory that only this user can change.
func (d *desk) write(name, text string) string {
	d.t.Helper()
	file := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return file
}

// contexts writes the file with the contexts.
func (d *desk) contexts(text string) string { return d.write(".config/zkelectd/config.yaml", text) }

// command returns a command with the environment of the desk.
func (d *desk) command(args ...string) *exec.Cmd {
	cmd := exec.Command("zkelectd", args...)
	cmd.Dir = d.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "HOME=" + d.dir, testHostFile + "=" + d.host}, d.env...)
	return cmd
}

// prints runs a command that must succeed and print each of the texts.
func (d *desk) prints(args []string, want ...string) string {
	d.t.Helper()
	out, err := d.command(args...).CombinedOutput()
	if err != nil {
		d.t.Errorf("%v: %v\n%s", args, err, out)
	}
	for _, text := range want {
		if !strings.Contains(string(out), text) {
			d.t.Errorf("%v prints no %q:\n%s", args, text, out)
		}
	}
	return string(out)
}

// fails runs a command that must fail with each of the texts.
func (d *desk) fails(args []string, want ...string) {
	d.t.Helper()
	out, err := d.command(args...).CombinedOutput()
	if err == nil {
		d.t.Errorf("%v succeeds:\n%s", args, out)
	}
	for _, text := range want {
		if !strings.Contains(string(out), text) {
			d.t.Errorf("%v prints no %q:\n%s", args, text, out)
		}
	}
}

// A command finds its group without flags.
func TestCommandsFindTheirGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var roots []string
	for range 5 {
		roots = append(roots, newFleet(t).paths.Root)
	}
	settings := func(i int) string {
		return fmt.Sprintf("servers: [%q], root: %s", shared.Addr(), roots[i])
	}
	shows := func(i int, args ...string) {
		t.Helper()
		d.prints(append([]string{"status", "-o", "json"}, args...), fmt.Sprintf("%q: %q", "root", roots[i]))
	}
	d.write("etc.yaml", "zookeeper: {"+settings(0)+"}\npolicy: {type: first}\nnode: {id: here}\n")
	shows(0)
	contexts := d.contexts(fmt.Sprintf("contexts:\n  one: {%s}\n  two: {%s}\n", settings(1), settings(2)))
	shows(0)
	d.prints([]string{"context", "use", "one"}, "commands use the context one now: "+shared.Addr()+", root "+roots[1])
	shows(1)
	d.prints([]string{"context", "list"}, "one      *        "+shared.Addr())
	d.prints([]string{"context", "list", "-o", "json"}, `"context": "two"`, `"current": false`)
	d.prints([]string{"context", "show", "--root", "/x"}, "Context  one in "+contexts,
		"zookeeper.servers          ['"+shared.Addr()+`']  context one (`+contexts+":3)", "/x                   --root", "zookeeper.acl              open                 default")
	shows(2, "--context", "two")
	d.env = []string{"ZKELECTD_CONTEXT=two"}
	shows(2)
	file := d.write("named.yaml", "zookeeper: {"+settings(3)+"}\n")
	d.env = append(d.env, "ZKELECTD_CONFIG="+file)
	shows(3)
	shows(1, "--context", "one")
	shows(0, "--config", d.host)
	shows(4, "--root", roots[4])
	d.fails([]string{"status", "--config", d.host, "--context", "one"}, "--config and --context exclude each other")

	// A file with a policy says which group the policy is for.
	d.env = nil
	fourth := d.write("policy.yaml", "policy: {type: node-id}\nzookeeper: {"+settings(4)+"}\n")
	d.prints([]string{"policy", "apply", fourth}, "revision 1 is in force")
	d.prints([]string{"policy", "show", "--root", roots[4]}, "type: node-id")
	d.prints([]string{"policy", "diff", fourth})
	d.fails([]string{"policy", "show"}, "znode "+roots[1]+"/policy does not exist")
	bare := d.write("bare.yaml", "policy: {type: first}\n")
	d.prints([]string{"policy", "apply", bare}, "revision 1 is in force")
	d.prints([]string{"policy", "show", "--context", "one"}, "type: first")
	d.prints([]string{"policy", "apply", fourth, "--context", "two"}, "revision 1 is in force")
	d.prints([]string{"policy", "show", "--context", "two"}, "type: node-id")

	// What is about the daemon of this host does not follow a context.
	d.fails([]string{"reload", "--timeout", "1s"}, "no zkelectd that this user can ask runs with "+d.host+" here")
	d.fails([]string{"context", "use", "three"}, `no context is named "three": `+contexts+" has one, two")
}

// With groups_dir, -g names a group of the host.
func TestCommandsFindTheGroupsOfTheHost(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing", "mail")
	d := newDesk(t)
	d.write("groups/billing.yaml", "{}\n")
	d.write("etc.yaml", fmt.Sprintf("node: {id: n1}\nzookeeper: {servers: [%q], root: %s}\ngroups_dir: %s\n", shared.Addr(), e.base, filepath.Join(d.dir, "groups")))
	d.prints([]string{"status", "-g", "mail", "-o", "json"}, e.base+"/mail")
	d.prints([]string{"group", "list"}, "billing", "mail")
	d.contexts(fmt.Sprintf("current: fleet\ncontexts: {fleet: {servers: [%q], root: %s}}\n", shared.Addr(), e.base))
	d.prints([]string{"status", "-g", "billing", "-o", "json"}, e.base+"/billing")
}

// Only the credentials of the same source arrive at the servers.
func TestCommandsPresentNoCredentialsOfOthers(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zkstore.ACLPrivate)
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=private")
	f.join("a")
	d := newDesk(t)
	auth := "ZKELECTD_ZOOKEEPER_AUTH_FILE=" + filepath.Join(f.dir, "auth")
	here := fmt.Sprintf("servers: [%q], root: %s", shared.Addr(), f.paths.Root)
	contexts := d.contexts(fmt.Sprintf("contexts:\n  bare: {%s}\n  full: {%s, auth: {file: %s}}\n", here, here, filepath.Join(f.dir, "auth")))
	d.prints([]string{"status", "--context", "full"}, "Leader   a")
	d.env = []string{auth}
	d.prints([]string{"status", "--zk", shared.Addr(), "--root", f.paths.Root}, "Leader   a")
	d.fails([]string{"status", "--context", "bare"}, "warning: --context bare names the whole connection: not used: ZKELECTD_ZOOKEEPER_AUTH_FILE", "not permitted by the znode's ACL")
	d.env = []string{auth, "ZKELECTD_CONTEXT=bare"}
	d.fails([]string{"status"}, "ZKELECTD_ZOOKEEPER_AUTH_FILE: zookeeper.auth.file: does not belong to zookeeper.servers (context bare ("+contexts+":2))")
	d.env = []string{"ZKELECTD_CONTEXT=full"}
	d.prints([]string{"status", "--zk", shared.Addr()}, "Leader   a")
	d.fails([]string{"status", "--zk", "127.0.0.1:" + closedPort(t)}, "--zk: zookeeper.servers: are not servers of the context full ("+contexts+":3)")
}

// An error says where the address came from; a broken file is refused; flags that say everything make both irrelevant.
func TestCommandsThatFindNoGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	nowhere := "127.0.0.1:" + closedPort(t)
	status := []string{"status", "--connect-timeout", "300ms"}
	const hint = ": to use others, add --zk, --config or --context"
	d.fails(append(status, "--zk", nowhere), "no ZooKeeper server answers: "+nowhere, "zookeeper.servers is from --zk"+hint)
	d.env = []string{"ZKELECTD_ZOOKEEPER_SERVERS=" + nowhere}
	d.fails(status, "zookeeper.servers is from ZKELECTD_ZOOKEEPER_SERVERS"+hint)
	d.env = nil
	d.write("etc.yaml", "node: {id: n1}\nzookeeper: {servers: ["+nowhere+"]}\n")
	d.fails(status, "zookeeper.servers is from "+d.host+":2"+hint)
	contexts := d.contexts("current: far\ncontexts:\n  far: {servers: [" + nowhere + "]}\n")
	d.fails(status, "zookeeper.servers is from context far ("+contexts+":3)"+hint)

	group := newFleet(t).paths.Root
	complete := []string{"status", "--zk", shared.Addr(), "--root", group}
	d.contexts("current: far\ncontexts:\n  far: {servres: [" + nowhere + "], root: far}\n")
	d.fails(status, contexts+":3: contexts.far.servres: is not a setting; did you mean contexts.far.servers?")
	d.prints(complete)
	auth := d.write("far.auth", "user:secret")
	if err := os.Chmod(auth, 0o644); err != nil {
		t.Fatal(err)
	}
	d.contexts("current: far\ncontexts:\n  far: {servers: [" + nowhere + "], auth: {file: ~/far.auth}}\n")
	d.fails(status, auth+" has mode 0644, so other users may be able to read the secret: chmod 0600")
	d.prints([]string{"context", "show"}, "Problem  zookeeper.auth.file: "+auth+" has mode 0644")
	if err := os.Chmod(contexts, 0o666); err != nil {
		t.Fatal(err)
	}
	d.fails(status, contexts+": can be changed by others: the file has mode 0666")
	d.prints(complete)
}

// closedPort returns a port at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ports, err := zkserver.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(ports[0])
}

// A configuration of the host that this user may not read is not skipped silently, unless nothing of it is needed.
func TestConfigurationThatThisUserMayNotRead(t *testing.T) {
	t.Parallel()
	root := newFleet(t).paths.Root
	dir, err := os.MkdirTemp("", "desk") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := exec.Command("sh", "-c", "chmod 0755 "+dir+" && cp /proc/$PPID/exe "+dir+"/zkelectd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := &desk{t: t, dir: dir, host: filepath.Join(dir, "etc.yaml")}
	d.write("etc.yaml", fmt.Sprintf("zookeeper: {servers: [%q], root: %s, auth: {file: %s}}\n", shared.Addr(), root, d.write("auth", "user:secret")))
	run := func(want string, args ...string) {
		t.Helper()
		cmd := d.command(args...)
		cmd.Path = filepath.Join(dir, "zkelectd")
		cmd.Err = nil
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		if (want != "") != (err != nil) || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	if os.Getuid() != 0 {
		if err := os.Chmod(d.host, 0); err != nil {
			t.Fatal(err)
		}
	}
	run(d.host+" says how to connect, but this user may not read it: use sudo, make a context (see 'zkelectd context --help'), or name the servers with --zk", "status")
	run("", "status", "--zk", shared.Addr(), "--root", root)
	if err := os.Chmod(d.host, 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		run("permission denied; use sudo, or a context with credentials of your own (see 'zkelectd context --help')", "status")
	}
}

// The examples of contexts are valid.
func TestDocumentedContexts(t *testing.T) {
	t.Parallel()
	_, inHelp, _ := strings.Cut(contextCommand().Long, "config.yaml):\n")
	inHelp, _, _ = strings.Cut(inHelp, "\nA context has")
	_, inRunbook, _ := strings.Cut(read("../../docs/operations.md"), "### Connect from your own host")
	_, inRunbook, _ = strings.Cut(inRunbook, "```yaml\n")
	inRunbook, _, _ = strings.Cut(inRunbook, "```")
	for name, text := range map[string]string{"help": inHelp, "runbook": inRunbook} {
		d := newDesk(t)
		all, err := config.ReadContexts(d.contexts(text), d.dir)
		if err != nil || strings.Join(all.Names(), " ") != "prod test" {
			t.Errorf("%s: %v, %v", name, err, all.Names())
		}
	}
}
