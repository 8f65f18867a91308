package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/faultproxy"
)

// reload has a daemon reload its configuration.
func (f *fleet) reload(id string) { syscall.Kill(f.daemon(id), syscall.SIGHUP) }

// reloads runs the command reload for a daemon, and returns its output.
func (f *fleet) reloads(id string) string {
	out, _ := zkelectd("reload", "--config", f.file(id))
	return out
}

// An invalid token file disables the HTTP API until the next restart, but does not end leadership.
func TestCrashWithDamagedTokens(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tokens := filepath.Join(f.dir, "tokens")
	put(t, tokens, "ops:"+strings.Repeat("x", 40)+"\n")
	term := f.startLeader("a", fmt.Sprintf("http: {listen: 127.0.0.1:0, token_file: %s}\n", tokens)).Term
	put(t, tokens, "nonsense\n")
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.until("a leads again, and status has the error", func(g status.Group) bool {
		return leads("a")(g) && g.Term > term && strings.Contains(strings.Join(g.Problems, "\n"), tokens)
	})
	f.logged("a", `runs_with="the last good configuration, without the HTTP API"`)
	f.checkInvariants()
}

// A crash applies no setting that needs a restart, or two groups would have this host's work and that of the others:
// the edited file names another group, another node and another child. That holds if guard and daemon are killed
// together, too, and for the file as it was read by a reload; only a stop ends it.
func TestCrashAppliesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	runtime := filepath.Join(f.dir, "run")
	mkdir(t, runtime)
	start := func() { f.startWith([]string{"RUNTIME_DIRECTORY=" + runtime}, "a") }
	api := "http: {listen: 'unix:" + f.socket("a") + "'}\n"
	f.configure("a", "dc1", 100, api)
	start()
	term := f.until("a leads", leads("a")).Term
	edited := strings.NewReplacer("root: "+f.paths.Root, "root: "+f.paths.Root+"-other", "id: a,", "id: z,", "[ledger-child]", "[sleep, '1000']", "priority: 100", "priority: 70").
		Replace(read(f.file("a")))
	put(t, f.file("a"), edited)
	const keys = "node.id, zookeeper.root, child.command"
	asBefore := func(what string, priority int) {
		t.Helper()
		g := f.until(what, func(g status.Group) bool {
			return leads("a")(g) && g.Term > term && strings.Contains(strings.Join(g.Problems, "\n"), "restart zkelectd there to apply "+keys)
		})
		if term = g.Term; len(g.Members) != 1 || g.Members[0].Priority != priority {
			t.Errorf("%s:\n%s", what, g.Table())
		}
		if _, body := f.ask("a", "/metrics"); !strings.Contains(body, "\nzkelectd_config_pending_settings 3\n") {
			t.Errorf("%s: the metrics do not say it:\n%s", what, body)
		}
		f.logged("a", `these settings need a restart" keys="`+keys+`"`)
	}
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	asBefore("a leads again", 100)
	f.logged("a", `run 'zkelectd reload'" changes=node.priority`)
	f.reload("a")
	f.until("the reload", func(g status.Group) bool { return g.Members[0].Priority == 70 })
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	asBefore("a leads again after a reload", 70)
	f.crash("a")
	start()
	asBefore("a leads again after guard and daemon were killed", 70)

	f.stop("a")
	f.paths.Root += "-other"
	start()
	f.until("z leads the other group after a stop", leads("z"))
	f.checkInvariants()
}

// A daemon that gives up by itself, here because ZooKeeper does not answer, was not stopped either: the service manager
// starts it again. One that has never joined has put nothing into force.
func TestOnlyAStopEndsTheConfigurationInForce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := faultproxy.ForTest(t, shared.Addr())
	f.servers = []string{l.Addr()}
	runtime := filepath.Join(f.dir, "run")
	mkdir(t, runtime)
	start := func() { f.startWith([]string{"RUNTIME_DIRECTORY=" + runtime}, "a") }
	givesUp := func() {
		t.Helper()
		if code := f.exit("a"); code != 1 {
			t.Errorf("exit status %d", code)
		}
	}
	f.configure("a", "dc1", 100, "zookeeper: {session_timeout: 4s, connect_timeout: 2s}\n")
	l.SetMode(faultproxy.Refuse)
	start()
	givesUp()
	if _, err := os.Stat(filepath.Join(runtime, "applied")); !os.IsNotExist(err) {
		t.Errorf("after a start that has failed: %v", err)
	}
	l.SetMode(faultproxy.Pass)
	start()
	term := f.until("a leads", leads("a")).Term
	edited := strings.Replace(read(f.file("a")), "root: "+f.paths.Root, "root: "+f.paths.Root+"-other", 1)
	put(t, f.file("a"), edited)
	daemon := f.daemon("a")
	l.SetMode(faultproxy.Refuse)
	syscall.Kill(daemon, syscall.SIGKILL)
	givesUp()
	l.SetMode(faultproxy.Pass)
	start()
	f.until("a leads the same group", func(g status.Group) bool {
		return leads("a")(g) && g.Term > term && strings.Contains(strings.Join(g.Problems, "\n"), "to apply zookeeper.root")
	})
	f.checkInvariants()
}

// One that starts while another one stops has read what was in force, but waits for the lock until it is not any more.
func TestAStartDuringAStopAppliesNothingOld(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	runtime := []string{"RUNTIME_DIRECTORY=" + filepath.Join(f.dir, "run")}
	mkdir(t, filepath.Join(f.dir, "run"))
	f.configure("a", "dc1", 100, "zookeeper: {session_timeout: 10s}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}, stop_timeout: 1s}\n")
	first := f.startWith(runtime, "a")
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	first.Signal(syscall.SIGTERM)
	second := f.startWith(runtime, "second", "--config", f.file("a"))
	f.eventually("the second one ends, or joins", func() bool {
		return isDone(second) || strings.Contains(second.Output(), "msg=registered")
	})
	if out := second.Output(); strings.Contains(out, "zkelectd was not stopped") {
		t.Errorf("the first one was stopped:\n%s", out)
	}
	f.checkInvariants()
}

// A configuration in force that cannot be used says what it is, and how to start with the files.
func TestAConfigurationInForceThatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	applied := filepath.Join(dir, "applied")
	put(t, applied, `{"host": "zookeeper: {auth: {file: /no/such/file}}"}`)
	cmd := exec.Command("zkelectd", "run", "--no-child")
	cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+dir)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"in force when zkelectd was killed", "/no/such/file", "remove " + applied} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, %q is not in %s", err, want, out)
		}
	}
}
