package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROLE") == "parent" {
		parent()
		return
	}
	goleak.VerifyTestMain(m)
}

// parent starts a child through the package, tells its pid, and waits to be killed.
func parent() {
	p, err := Start(Options{Command: []string{"sleep", "1000"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Pid())
	<-p.Dead()
}

func start(t *testing.T, opt Options) *Process {
	t.Helper()
	p, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		<-p.Dead()
	})
	return p
}

func shell(script string) []string { return []string{"sh", "-c", script} }

func dead(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Dead():
	case <-time.After(30 * time.Second):
		t.Fatal("the group does not die")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not happen", what)
		}
	}
}

// alive tells whether a process exists and is no zombie.
func alive(pid string) bool {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(data[strings.LastIndexByte(string(data), ')'):]), ") Z ")
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func TestStopAsksFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	p := start(t, Options{Command: shell("trap 'echo asked >" + file + "; exit 7' USR1; echo up >" + file + "; while :; do sleep 0.01; done"), StopSignal: syscall.SIGUSR1})
	eventually(t, "the trap", func() bool { return read(file) == "up" })
	p.Stop(30 * time.Second)
	p.Stop(30 * time.Second)
	dead(t, p)
	if read(file) != "asked" || p.Status() != "exited with status 7" {
		t.Errorf("%q, %s", read(file), p.Status())
	}
	p.Kill() // after the end: harmless
}

func TestTheWholeGroupDies(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		end    func(p *Process)
	}{
		"ignores TERM":                         {"trap '' TERM; echo $$ >F; while :; do sleep 0.01; done", func(p *Process) { p.Stop(50 * time.Millisecond) }},
		"its child ignores TERM":               {"(trap '' TERM; sh -c 'echo $$ >F; while :; do sleep 0.01; done') & wait", func(p *Process) { p.Stop(50 * time.Millisecond) }},
		"exits and leaves a child behind":      {"sh -c 'echo $$ >F; exec sleep 1000' & sleep 0.05; exit 0", func(*Process) {}},
		"exits on TERM, its child does not":    {"(trap '' TERM; sh -c 'echo $$ >F; exec sleep 1000') & trap 'exit 0' TERM; while :; do sleep 0.01; done", func(p *Process) { p.Stop(time.Minute) }},
		"no grace":                             {"echo $$ >F; exec sleep 1000", func(p *Process) { p.Stop(0) }},
		"killed":                               {"echo $$ >F; exec sleep 1000", func(p *Process) { p.Kill() }},
		"stopped by job control, then by TERM": {"echo $$ >F; kill -STOP $$; exec sleep 1000", func(p *Process) { p.Stop(time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			p := start(t, Options{Command: shell(strings.ReplaceAll(c.script, "F", file))})
			eventually(t, "the start", func() bool { return read(file) != "" })
			c.end(p)
			dead(t, p)
			if alive(read(file)) {
				t.Errorf("%s survives", read(file))
			}
		})
	}
}

// Nothing survives the daemon, even if that is killed with -9.
func TestDiesWithItsParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ROLE=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(line)
	if !alive(pid) {
		t.Fatalf("no child: %q", line)
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the child's death", func() bool { return !alive(pid) })
}

func TestWhatCannotBeStartedIsNamed(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"/no/such/program"}, {"no-such-program"}, {plain}, {}} {
		_, err := Start(Options{Command: command})
		if err == nil || !strings.Contains(err.Error(), "child.command") || (len(command) > 0 && !strings.Contains(err.Error(), command[0])) {
			t.Errorf("%v: %v", command, err)
		}
	}
	if _, err := Start(Options{Command: shell("true"), Dir: "/no/such/dir"}); err == nil {
		t.Error("started in a directory that does not exist")
	}
}

// What systemd could read as more than text is refused.
func TestTextsOfAnEnvironmentFile(t *testing.T) {
	fine := Fencing{Node: "n-1.example", Site: "Zürich (west), no. 3", Group: "a@b", Term: "1795335767", Root: "/teams/a@b"}
	if err := fine.CheckTexts(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"a\nLD_PRELOAD=x", "a\rb", "a\x00b", "a\tb", "a\x1b[31mb", "a\x7fb", "a\u0085b", "a\u2028b", "a\u202eb", "a\ufeffb", "\xff", `a"b`, "a'b", "a`b", "a$b", `a\b`, strings.Repeat("a", maxText+1)} {
		for name, set := range map[string]func(f *Fencing){
			"ZKELECTD_NODE": func(f *Fencing) { f.Node = bad }, "ZKELECTD_SITE": func(f *Fencing) { f.Site = bad },
			"ZKELECTD_GROUP": func(f *Fencing) { f.Group = bad }, "ZKELECTD_ROOT": func(f *Fencing) { f.Root = bad }, `the term`: func(f *Fencing) { f.Term = bad },
		} {
			f := fine
			set(&f)
			if err := f.CheckTexts(); err == nil || !strings.HasPrefix(err.Error(), name) || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
	for _, term := range []string{"", "0", "-1", "07", "+7", "7 ", "0x7", "9223372036854775808"} {
		f := fine
		f.Term = term
		if f.CheckTexts() == nil {
			t.Errorf("%q is taken for a term", term)
		}
	}
}

func TestEnvironment(t *testing.T) {
	base := []string{"PATH=/bin", "ZKELECTD_ZOOKEEPER_AUTH=secret", "NOTIFY_SOCKET=/x", "WATCHDOG_USEC=1", "CREDENTIALS_DIRECTORY=/c", "LISTEN_FDS=1", "HOME=/h"}
	got := Environment(base, Fencing{Node: "n", Site: "s", Group: "g", Term: "7", Root: "/r/g"}, map[string]string{"FOO": "bar", "ZKELECTD_TERM": "9"})
	slices.Sort(got)
	want := []string{"FOO=bar", "HOME=/h", "PATH=/bin", "ZKELECTD_GROUP=g", "ZKELECTD_NODE=n", "ZKELECTD_ROOT=/r/g", "ZKELECTD_SITE=s", "ZKELECTD_TERM=7"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	file := filepath.Join(t.TempDir(), "fds")
	p := start(t, Options{Command: shell("ls -l /proc/$$/fd >" + file)})
	dead(t, p)
	if list := read(file); list == "" || strings.Contains(list, secret.Name()) || strings.Contains(list, "socket:") {
		t.Errorf("the child has\n%s", list)
	}
}
