package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
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
	put(d.t, file, text)
	return file
}

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
	for range 4 {
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
	d.env = []string{"ZKELECTD_CONFIG=" + d.write("named.yaml", "zookeeper: {"+settings(1)+"}\n")}
	shows(1)
	shows(0, "--config", d.host)
	shows(2, "--root", roots[2])

	// A file with a policy says which group the policy is for.
	policy := d.write("policy.yaml", "policy: {type: node-id}\nzookeeper: {"+settings(3)+"}\n")
	d.prints([]string{"policy", "--apply", policy}, "revision 1 is in force")
	d.prints([]string{"policy", "--root", roots[3]}, "type: node-id")
	d.prints([]string{"policy", "--apply", "--dry-run", policy})
	d.fails([]string{"policy"}, "znode "+roots[1]+"/policy does not exist")
	bare := d.write("bare.yaml", "policy: {type: first}\n")
	d.prints([]string{"policy", "--apply", bare}, "revision 1 is in force")
	d.prints([]string{"policy"}, "type: first")
	d.prints([]string{"policy", "--apply", policy, "--config", d.host}, "revision 1 is in force")
	d.prints([]string{"policy", "--config", d.host}, "type: node-id")
}

// Only the credentials of the same source arrive at the servers.
func TestCommandsPresentNoCredentialsOfOthers(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	f.env = append(f.env, "ZKELECTD_ZOOKEEPER_ACL=private")
	f.join("a")
	d := newDesk(t)
	auth := "ZKELECTD_ZOOKEEPER_AUTH_FILE=" + filepath.Join(f.dir, "auth")
	here := fmt.Sprintf("servers: [%q], root: %s", shared.Addr(), f.paths.Root)
	bare := d.write("bare.yaml", fmt.Sprintf("zookeeper: {%s}\n", here))
	full := d.write("full.yaml", fmt.Sprintf("zookeeper: {%s, auth: {file: %s}}\n", here, filepath.Join(f.dir, "auth")))
	d.prints([]string{"status", "--config", full}, "Leader   a")
	d.fails([]string{"status", "--config", full, "--zk", "127.0.0.1:" + closedPort(t)}, full+":1: zookeeper.auth.file: belongs to zookeeper.servers")
	d.fails([]string{"status", "--config", bare}, "not permitted by the znode's ACL")
	d.env = []string{auth}
	d.prints([]string{"status", "--zk", shared.Addr(), "--root", f.paths.Root}, "Leader   a")
	d.fails([]string{"status", "--config", bare}, "ZKELECTD_ZOOKEEPER_AUTH_FILE: zookeeper.auth.file: does not belong to zookeeper.servers ("+bare+":1)")
}

// An error says where the address came from; flags that say everything make a broken file irrelevant.
func TestCommandsThatFindNoGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	nowhere := "127.0.0.1:" + closedPort(t)
	status := []string{"status", "--connect-timeout", "300ms"}
	const advice = ": to use others, add --zk or --config"
	d.fails(append(status, "--zk", nowhere), "no ZooKeeper server answers: "+nowhere, "zookeeper.servers is from --zk"+advice)
	d.env = []string{"ZKELECTD_ZOOKEEPER_SERVERS=" + nowhere}
	d.fails(status, "zookeeper.servers is from ZKELECTD_ZOOKEEPER_SERVERS"+advice)
	d.env = nil
	d.write("etc.yaml", "node: {id: n1}\nzookeeper: {servers: ["+nowhere+"]}\n")
	d.fails(status, "zookeeper.servers is from "+d.host+":2"+advice)
	d.write("etc.yaml", "zookeeper: {servres: ["+nowhere+"]}\n")
	d.fails(status, d.host+":1: zookeeper.servres: is not a setting; did you mean zookeeper.servers?")
	d.prints([]string{"status", "--zk", shared.Addr(), "--root", newFleet(t).paths.Root})
}

// closedPort returns a port at which nothing listens.
func closedPort(t *testing.T) string { return fmt.Sprint(freePorts(t, 1)[0]) }

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := zkserver.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// A configuration of the host that this user may not read is not skipped silently, unless nothing of it is needed.
func TestConfigurationThatThisUserMayNotRead(t *testing.T) {
	t.Parallel()
	root := newFleet(t).paths.Root
	dir := testhelper.PublicDir(t)
	if out, err := exec.Command("sh", "-c", "cp /proc/$PPID/exe "+dir+"/zkelectd").CombinedOutput(); err != nil {
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
	run(d.host+" says how to connect, but this user may not read it: use sudo, name a file of your own with --config, or the servers with --zk", "status")
	run("", "status", "--zk", shared.Addr(), "--root", root)
	if err := os.Chmod(d.host, 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		run("permission denied; use sudo, or --config with a file of your own", "status")
	}
}
