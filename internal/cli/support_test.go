package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// marker is a part of every secret of the test.
const marker = "marker-of-a-secret"

// The bundle has what a bug report needs, and no secret, wherever it is.
func TestSupportBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	auth := filepath.Join(f.dir, "auth")
	put(t, auth, "zkelectd:"+password+"\nanother-user:"+marker+"-digest\n")
	f.env = append(f.env, "OWN_SECRET="+marker+"-environment")
	tokens := f.tokens("night-shift:" + marker + "-of-the-night-shift-at-http")
	f.configure("n1", "dc1", 1, fmt.Sprintf("zookeeper: {acl: private, session_timeout: 10s, session_file: '%s'}\nhttp: {listen: 'unix:%s', %s}\n"+
		"health: {http: 'http://user:%s-url@127.0.0.1:1/?key=%[4]s-query', interval: 1h}\n"+
		"child: {command: [ledger-child, --password=%[4]s-argument], env: {LEDGER: LEDGERFILE, TOKEN: %[4]s-child}, stop_timeout: 400ms}\n",
		f.socket("n1")+".session", f.socket("n1"), tokens, marker))
	f.start("n1")
	f.until("n1 is a member", func(g status.Group) bool { return len(g.Members) == 1 })
	f.eventually("the endpoint answers", func() bool {
		_, err := exec.Command("zkelectd", "probe", "--http", "unix:"+f.socket("n1")).Output()
		return err == nil
	})
	file := filepath.Join(f.dir, "report.tar.gz")
	support := exec.Command("zkelectd", "doctor", "--support", "--config", f.file("n1"), "--file", file)
	support.Env = append(os.Environ(), f.env...)
	out, err := support.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "wrote "+file) {
		t.Fatalf("%v\n%s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	dir := filepath.Join(f.dir, "unpacked")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-xzf", file, "-C", dir, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	group := "groups/" + groupName(f)
	for name, want := range map[string]string{
		"README.txt": group + "/status.json: the status", "version.txt": "Linux", "config.yaml": "TOKEN: (not shown)", "doctor.txt": "quorum",
		group + "/config.yaml": "(not shown)", group + "/status.json": `"members"`, group + "/history.json": "terms", group + "/policy.json": "revision",
		group + "/requests.json": "{", group + "/acl.json": "znodes", "daemon/metrics.txt": "zkelectd_build_info", "daemon/status.json": `"containment"`,
	} {
		if text := read(filepath.Join(dir, name)); !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in %.500s", name, want, text)
		}
	}
	checkNoSecret(t, dir)
	if strings.Contains(string(out), marker) {
		t.Errorf("%s", out)
	}
	again := exec.Command("zkelectd", "doctor", "--support", "--config", f.file("n1"), "--file", file)
	again.Env = support.Env
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "file exists") {
		t.Errorf("a file is overwritten: %v, %s", err, out)
	}
}

// checkNoSecret checks that no file below dir has a secret of the test.
func checkNoSecret(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		for _, secret := range []string{marker, password} {
			if text := read(path); strings.Contains(text, secret) {
				i := strings.Index(text, secret)
				t.Errorf("%s has a secret: %s", path, text[max(0, i-100):min(len(text), i+100)])
			}
		}
		return nil
	})
	if err != nil || files < 15 {
		t.Errorf("%d files, %v", files, err)
	}
}

// A bundle with nothing in it is no success.
func TestSupportThatCollectsNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	out, err := d.command("doctor", "--support", "--zk", "127.0.0.1:"+closedPort(t), "--file", file).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != statusError || !strings.Contains(string(out), "has nothing about a daemon or a group") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// Nothing waits for a FIFO in the place of a file with secrets.
func TestSupportReadsNoFIFO(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tokens := filepath.Join(f.dir, "tokens")
	if err := syscall.Mkfifo(tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	f.configure("n1", "dc1", 1, fmt.Sprintf("http: {listen: '127.0.0.1:1', token_file: '%s'}\n", tokens))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "zkelectd", "doctor", "--support", "--config", f.file("n1"), "--file", filepath.Join(f.dir, "report.tar.gz")).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
