package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A configuration names commands: one that others may write is refused, at a start and at a reload.
func TestAConfigurationThatOthersMayWriteIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := f.file("a")
	listen := fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket("a"))
	f.configure("a", "dc1", 100, listen)
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"check", "--offline"}, {"run", "--no-respawn"}} {
			f.failsWith(want, append(args, "--config", file)...)
		}
	}
	chmod(file, 0o646)
	refused(file + ": can be changed by others: the file has mode 0646: chmod go-w " + file)
	chmod(file, 0o600)
	chmod(f.dir, 0o777)
	refused(file + ": can be changed by others: its directory " + f.dir + " has mode 0777: chmod go-w " + f.dir)
	chmod(f.dir, 0o700)

	open := filepath.Join(t.TempDir(), "open")
	mkdir(t, open)
	link := filepath.Join(f.dir, "link.yaml")
	if err := os.Rename(file, filepath.Join(open, "real.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(open, "real.yaml"), link); err != nil {
		t.Fatal(err)
	}
	chmod(open, 0o777)
	f.failsWith("its directory "+open+" has mode 0777: chmod go-w "+open, "check", "--offline", "--config", link)

	// The same at a reload: the running configuration stays in force.
	f.startLeader("a", listen)
	f.configure("a", "dc1", 100, listen+"hooks: {on_change: [/bin/false]}\n")
	chmod(file, 0o666)
	f.reload("a")
	f.logged("a", "reload refused, the running configuration stays")
	f.logged("a", "can be changed by others")
	chmod(file, 0o600)

	// The files that secure the API decide who may submit requests.
	web := filepath.Join(f.dir, "web.yml")
	put(t, web, "basic_auth_users: {}\n")
	chmod(web, 0o666)
	f.configure("b", "dc1", 100, "http: {listen: '127.0.0.1:0', web_config: "+web+"}\n")
	f.failsWith("http.web_config: "+web+" can be changed by others: the file has mode 0666: chmod go-w "+web, "check", "--config", f.file("b"))
	tokens := filepath.Join(open, "tokens")
	put(t, tokens, "ops:"+nightsToken+"\n")
	f.configure("b", "dc1", 100, "http: {listen: '127.0.0.1:0', token_file: "+tokens+"}\n")
	f.failsWith("http.token_file: "+tokens+" can be changed by others: its directory "+open+" has mode 0777", "check", "--config", f.file("b"))
	f.checkInvariants()
}

// A configuration on a read-only mount is accepted although its directory is writable for all, as Kubernetes mounts it. A
// mount that is read-only as a whole, as under ProtectSystem=strict, does not count.
func TestAConfigurationOnAReadOnlyMount(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "config")
	sub := filepath.Join(dir, "sub")
	mkdir(t, sub)
	for _, path := range []string{dir, sub} {
		if err := os.WriteFile(filepath.Join(path, "z.yaml"), []byte("node: {id: mounted}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	check := func(path string) string {
		cmd := exec.Command("sh", "-ec", "mount --bind $D $D; mount -o remount,bind,ro $D; exec zkelectd check --offline --print --no-child --config $F")
		cmd.Env = append(os.Environ(), "D="+dir, "F="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		return fmt.Sprintf("%v: %s", err, out)
	}
	if out := check(filepath.Join(dir, "z.yaml")); !strings.Contains(out, "id: mounted") {
		t.Error(out)
	}
	if out := check(filepath.Join(sub, "z.yaml")); !strings.Contains(out, "its directory "+sub+" has mode 0777") {
		t.Error(out)
	}
}
