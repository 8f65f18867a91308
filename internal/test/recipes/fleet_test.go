package recipes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/process"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// waitTimeout is how long a condition may take. Only a failure takes so long.
const waitTimeout = 60 * time.Second

// fleet is a ZooKeeper server, and the processes that a test starts.
type fleet struct {
	t         *testing.T
	dir       string // for the test's files and logs
	zk        *zkserver.Server
	processes map[string]*process.Process
}

// newFleet starts a ZooKeeper server. At the end of the test all processes are stopped. With opt a server can listen on another
// address: the line clientPortAddress=0.0.0.0 in ExtraConfig also serves network namespaces.
func newFleet(t *testing.T, opt zkserver.Options) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "zkelectd-recipe-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: dir, processes: make(map[string]*process.Process)}
	t.Cleanup(f.close)
	if err := os.Chmod(dir, 0o755); err != nil { // servers run as their own users
		t.Fatal(err)
	}
	if f.zk, err = zkserver.Start(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) close() {
	for name := range f.processes {
		f.stop(name)
	}
	if f.zk != nil {
		f.zk.Stop()
	}
	if f.t.Failed() {
		for name, p := range f.processes {
			f.t.Logf("--- %s\n%s", name, p.Output())
		}
	}
	if *keep {
		f.t.Logf("the logs are in %s", f.dir)
		return
	}
	os.RemoveAll(f.dir)
}

func (f *fleet) file(name string) string { return filepath.Join(f.dir, name) }

// write writes a file of the test and returns its path.
func (f *fleet) write(name, text string) string {
	f.t.Helper()
	if err := os.WriteFile(f.file(name), []byte(text), 0o755); err != nil {
		f.t.Fatal(err)
	}
	return f.file(name)
}

// example returns the text of a file of a recipe with replacements, pairs as for [strings.NewReplacer]. Each must occur, so that
// the test runs what the file says.
func (f *fleet) example(path string, replace ...string) string {
	f.t.Helper()
	text := read(f.t, filepath.Join(examples, path))
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			f.t.Fatalf("deploy/examples/%s does not contain %q", path, replace[i])
		}
	}
	return strings.NewReplacer(replace...).Replace(text)
}

// start starts a program under a name. Its output goes to the file NAME.log. A name can be used again after the end.
func (f *fleet) start(name string, cmd *exec.Cmd) {
	f.t.Helper()
	f.processes[name] = process.Start(f.t, cmd, f.file(name+".log"))
}

// daemon starts zkelectd run with a configuration, which becomes the file ID.yaml. prefix is put before the command, such as ip netns
// exec n1.
func (f *fleet) daemon(id, config string, prefix ...string) {
	f.t.Helper()
	path := f.write(id+".yaml", config)
	argv := append(prefix, binary, "run", "--create", "--config", path)
	f.start(id, exec.Command(argv[0], argv[1:]...))
}

// run runs a command to its end.
func (f *fleet) run(argv ...string) {
	f.t.Helper()
	if out, err := exec.CommandContext(f.t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// zkelectd runs a command with arguments, and returns its output and exit status.
func (f *fleet) zkelectd(args ...string) (out string, status int) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), binary, args...)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

// stop ends a process with SIGTERM.
func (f *fleet) stop(name string) {
	f.t.Helper()
	f.processes[name].Stop(f.t, syscall.SIGTERM, waitTimeout)
}

// stopFirst makes the end of the test begin with the end of these processes, while they can still reach ZooKeeper.
func (f *fleet) stopFirst(names ...string) {
	f.t.Cleanup(func() {
		for _, name := range names {
			f.stop(name)
		}
	})
}

// moves moves the leadership of a group to a node, and waits for that.
func (f *fleet) moves(root, id string, flags ...string) {
	f.t.Helper()
	args := append([]string{"move", id, "--zk", f.zk.Addr(), "--root", root, "--wait"}, flags...)
	if out, status := f.zkelectd(args...); status != 0 {
		f.t.Fatal(out)
	}
}

// exit waits until a process has exited, and returns its exit status.
func (f *fleet) exit(name string) int {
	f.t.Helper()
	return f.processes[name].Exit(f.t, waitTimeout)
}

// leads waits until a node leads the group with a root, READY.
func (f *fleet) leads(root, id string) {
	f.t.Helper()
	f.eventually(id+" leads "+root, func() bool {
		_, status := f.zkelectd("leader", "--is", "--zk", f.zk.Addr(), "--root", root, "--id", id)
		return status == 0
	})
}

// eventually waits until a condition is met.
func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	testhelper.Eventually(f.t, waitTimeout, what, ok)
}

// logged waits until the output of a process contains a text.
func (f *fleet) logged(name, text string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s logs %q", name, text), func() bool { return strings.Contains(f.processes[name].Output(), text) })
}

// signal sends a signal to processes of zkelectd that belong to a node, all at once.
func (f *fleet) signal(sig syscall.Signal, id string, names ...string) {
	f.t.Helper()
	all := process.Of(f.processes[id].Process.Pid)
	for _, name := range names {
		if len(all[name]) == 0 {
			f.t.Fatalf("%s has no process %s", id, name)
		}
		for _, pid := range all[name] {
			syscall.Kill(pid, sig)
		}
	}
}
