package clients

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/process"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// waitTimeout is how long a condition may take. Only a failure takes so long, unless the machine is busy.
const waitTimeout = 90 * time.Second

// fleet is a ZooKeeper server with daemons, and applications beside them.
type fleet struct {
	t       *testing.T
	dir     string
	zk      *zkserver.Server
	binary  string
	apps    map[string][]string
	session time.Duration

	*ledger
}

// ledger is what the applications have led.
type ledger struct {
	mu  sync.Mutex
	led []term
}

// term is a time in which an application was the leader.
type term struct {
	app             string
	from, to, token int64
}

func newFleet(t *testing.T, session time.Duration) *fleet {
	t.Helper()
	zk, dir := zkserver.ForTest(t, zkserver.Options{}), testhelper.PublicDir(t)
	daemon.Do(func() { testhelper.BuildZkelectd(t, built, "") })
	return &fleet{t: t, dir: dir, zk: zk, binary: filepath.Join(built, "zkelectd"), apps: languages(t), session: session, ledger: new(ledger)}
}

// lease returns how long an application that is stopped can have a lease: the daemon may answer with one renewal more.
func (f *fleet) lease() time.Duration { return f.session * 45 / 100 * 4 / 3 }

func (f *fleet) config(id string) string { return filepath.Join(f.dir, id+".yaml") }

func (f *fleet) socket(id string) string { return filepath.Join(f.dir, id+".sock") }

// app is an application beside a daemon.
type app struct {
	*process.Process
	f     *fleet
	name  string
	lines chan string // what it prints, except what it has led
	part  string      // of a line
}

func (f *fleet) start(name string, sig syscall.Signal, cmd *exec.Cmd) *process.Process {
	f.t.Helper()
	p := process.Start(f.t, cmd, filepath.Join(f.dir, name+".log"))
	f.t.Cleanup(func() {
		p.Stop(f.t, sig, waitTimeout)
		if f.t.Failed() {
			f.t.Logf("--- %s\n%s", name, p.Output())
		}
	})
	return p
}

// Write reads what the application prints.
func (p *app) Write(text []byte) (int, error) {
	lines := strings.Split(p.part+string(text), "\n")
	p.part = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		l := term{app: p.name}
		switch n, _ := fmt.Sscanf(line, "led %d %d %d", &l.from, &l.to, &l.token); {
		case n == 3:
			p.f.mu.Lock()
			p.f.led = append(p.f.led, l)
			p.f.mu.Unlock()
			p.lines <- "led"
		case strings.HasPrefix(line, "lead "):
			p.lines <- "lead"
		default:
			p.f.t.Errorf("%s: %s", p.name, line)
		}
	}
	return len(text), nil
}

// await waits until an application has printed a line. It is for any goroutine, and reports false if it fails.
func (p *app) await(want string) bool {
	for limit := time.After(waitTimeout); ; {
		select {
		case line := <-p.lines:
			if line == want {
				return true
			}
		case <-p.Done:
			p.f.t.Errorf("%s has ended", p.name)
			return false
		case <-limit:
			p.f.t.Errorf("%s does not print %q", p.name, want)
			return false
		}
	}
}

// daemon starts a daemon with an HTTP socket and no work.
func (f *fleet) daemon(id string, extra string) *process.Process {
	f.t.Helper()
	text := fmt.Sprintf("node: {id: %s}\nzookeeper: {servers: [%s], root: /c, session_timeout: %s, session_file: %s}\n"+
		"election: {settle: 0s}\nhttp: {listen: 'unix:%s'}\n%s\n", id, f.zk.Addr(), f.session, filepath.Join(f.dir, id+".session"), f.socket(id), extra)
	if err := os.WriteFile(f.config(id), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return f.start(id, syscall.SIGTERM, exec.Command(f.binary, "run", "--create", "--config", f.config(id)))
}

// app starts an application in a language beside a daemon.
func (f *fleet) app(language, id, group string, stubborn bool) *app {
	f.t.Helper()
	return f.startApp(language, f.socket(id), group, f.lease(), stubborn)
}

func (f *fleet) startApp(language, socket, group string, lease time.Duration, stubborn bool) *app {
	f.t.Helper()
	argv := append(slices.Clone(f.apps[language]), socket, group, fmt.Sprint(lease.Nanoseconds()), fmt.Sprint(stubborn))
	a := &app{f: f, name: language + " with " + socket, lines: make(chan string, 10000)}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = a, a
	a.Process = f.start(a.name, syscall.SIGKILL, cmd)
	return a
}

// child returns the process of a node with a role: daemon or keeper.
func (f *fleet) child(p *process.Process, role string) (pid int) {
	f.t.Helper()
	testhelper.Eventually(f.t, waitTimeout, p.String()+" has a "+role, func() bool {
		for _, pid = range process.Of(p.Process.Pid)[role] {
			return true
		}
		return false
	})
	return pid
}

// zkelectd runs a command to its end.
func (f *fleet) zkelectd(args ...string) string {
	f.t.Helper()
	out, err := exec.CommandContext(f.t.Context(), f.binary, append(args, "--zk", f.zk.Addr(), "--root", "/c")...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// publish publishes a value once the daemon leads.
func (f *fleet) publish(id, value string) {
	f.t.Helper()
	socket := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.socket(id))
	}}
	testhelper.Eventually(f.t, waitTimeout, "a value is published", func() bool {
		r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut, "http://localhost/v1/value", strings.NewReader(value))
		if err != nil {
			f.t.Fatal(err)
		}
		if response, err := socket.RoundTrip(r); err == nil {
			response.Body.Close()
		}
		out, _ := exec.CommandContext(f.t.Context(), f.binary, "leader", "-o", "json", "--zk", f.zk.Addr(), "--root", "/c").Output()
		return strings.Contains(string(out), `"value":`)
	})
}
