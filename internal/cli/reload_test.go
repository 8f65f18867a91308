package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/host"
	"zkelectd/internal/operator/status"
)

func TestDescribeReload(t *testing.T) {
	t.Parallel()
	same, changed := host.GroupReload{Name: "a", Changed: host.NothingChanged}, host.GroupReload{Name: "b", Changed: "applied: node.priority"}
	refused := host.GroupReload{Name: "a", Refused: "a.yaml: x"}
	held := host.GroupReload{Name: "b", Changed: "applied: node.priority", Blocked: []string{"b would be better"}}
	published := changed
	published.Published, published.Unpublished = []string{"policy.failback: immediate -> 5m"}, []string{"policy.sites.dc1: the file has 200, in force is 300"}
	const done = "n1 has reloaded its configuration"
	for name, c := range map[string]struct {
		result     host.ReloadResult
		text, want string
	}{
		"a change":  {host.ReloadResult{Groups: []host.GroupReload{same, changed}}, "b: applied: node.priority\n" + done + "\n", ""},
		"held back": {host.ReloadResult{Groups: []host.GroupReload{held}}, "b: applied: node.priority\n" + done + "\nb: b would be better\n", ""},
		"a policy": {host.ReloadResult{Groups: []host.GroupReload{published}}, "b: applied: node.priority\n" + done + "\nb: for the whole group: policy.failback: immediate -> 5m\n" +
			"b: not published: policy.sites.dc1: the file has 200, in force is 300\n", ""},
		"one refused": {host.ReloadResult{Groups: []host.GroupReload{refused, changed}}, "b: applied: node.priority\n", "these groups stay as they are:\na.yaml: x"},
		"all refused": {host.ReloadResult{Refused: "gone"}, "", "reload refused, the running configuration stays in force:\ngone"},
	} {
		c.result.Node = "n1"
		text, err := describeReload(c.result)
		if text != c.text || (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// The path of the configuration file, or the runtime directory, leads to the daemon, whatever the file says now and
// whatever the records say; and it is the daemon that refuses a damaged file, so that status and metrics say so.
func TestReloadFindsItsDaemonByThePath(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	api := "http: {listen: 'unix:" + f.socket("a") + "'}\n"
	f.startLeader("a", api)
	good := read(f.file("a"))
	reload := func(code int, want string, env ...string) {
		t.Helper()
		cmd := exec.Command("zkelectd", "reload", "--config", filepath.Base(f.file("a")))
		cmd.Dir, cmd.Env = f.dir, append(os.Environ(), env...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Errorf("%d, want %q:\n%s", cmd.ProcessState.ExitCode(), want, out)
		}
	}
	write := func(text string) {
		t.Helper()
		put(t, f.file("a"), text)
	}
	write(strings.NewReplacer("root: "+f.paths.Root, "root: /nowhere", "id: a,", "id: z,").Replace(good))
	reload(0, "a has reloaded its configuration: no setting has changed; a restart is needed for node.id, zookeeper.root")

	write("nod: {}\n")
	reload(statusRefused, "nod: is not a setting")
	f.until("status has the error", func(g status.Group) bool {
		return strings.Contains(strings.Join(g.Problems, "\n"), "nod: is not a setting")
	})
	if _, body := f.ask("a", "/metrics"); !strings.Contains(body, "\nzkelectd_config_last_reload_successful 0\n") {
		t.Errorf("the metrics do not say it:\n%s", body)
	}
	write(good)
	syscall.Kill(f.daemon("a"), syscall.SIGKILL) // its socket remains
	f.logged("a", "this daemon starts with the configuration that was in force then")
	f.until("a leads again", leads("a"))
	reload(0, "a has reloaded its configuration")
	f.until("nothing is refused any more", func(g status.Group) bool { return leads("a")(g) && len(g.Problems) == 0 })
	reload(2, "no zkelectd that this user can ask runs with a.yaml here", "RUNTIME_DIRECTORY="+t.TempDir())

	runtime := filepath.Join(f.dir, "run")
	mkdir(t, runtime)
	f.stop("a")
	f.startWith([]string{"RUNTIME_DIRECTORY=" + runtime}, "a")
	f.until("a leads in a unit", leads("a"))
	reload(0, "a has reloaded its configuration: no setting has changed", "RUNTIME_DIRECTORY="+runtime)
	reload(2, "no zkelectd that this user can ask runs with a.yaml here")
	f.checkInvariants()
}

// A daemon that has no session with ZooKeeper says so in its metrics and on its page, which distinguishes an unknown leader from none,
// and refuses an invalid configuration at once.
func TestADaemonWithoutASession(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.servers = []string{"127.0.0.1:1"}
	f.configure("a", "dc1", 1, fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket("a")))
	f.start("a")
	f.answers("a", "/livez", 200)
	group := fmt.Sprintf("group=%q", f.groupName())
	for _, line := range []string{"zkelectd_is_leader{" + group + "} 0", "zkelectd_is_elector{" + group + "} 0", "zkelectd_session_up 0", "zkelectd_state{" + group + `,state="connecting"} 1`} {
		f.eventually("the metrics have "+line, func() bool {
			_, body := f.ask("a", "/metrics")
			return strings.Contains(body, "\n"+line+"\n")
		})
	}
	p := f.open(f.proxy("a"))
	p.shows("#leader", "Unknown")
	p.shows("#banner", "cannot read the group: there is no session with ZooKeeper")
	p.checkConsole()
	good := read(f.file("a"))
	reload := func(text string, code int, want string) {
		t.Helper()
		put(t, f.file("a"), text)
		cmd := exec.CommandContext(t.Context(), "zkelectd", "reload", "--config", f.file("a"), "--timeout", "3s")
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Errorf("%d, want %q:\n%s", cmd.ProcessState.ExitCode(), want, out)
		}
	}
	reload(good+"nod: {}\n", statusRefused, "nod: is not a setting")
	if _, body := f.ask("a", "/metrics"); !strings.Contains(body, "\nzkelectd_config_last_reload_successful 0\n") {
		t.Errorf("the metrics do not say it:\n%s", body)
	}
	reload(good, statusTimedOut, "the daemon has not answered within 3s")
}
