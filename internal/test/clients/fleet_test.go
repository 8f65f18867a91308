package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	zk, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "zkelectd") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		zk.Stop()
		os.RemoveAll(dir)
	})
	daemon.Do(func() { testhelper.BuildZkelectd(t, built, "") })
	return &fleet{t: t, dir: dir, zk: zk, binary: filepath.Join(built, "zkelectd"), apps: languages(t), session: session, ledger: new(ledger)}
}

// lease returns how long an application that is stopped can have a lease: the daemon may answer with one renewal more.
func (f *fleet) lease() time.Duration { return f.session * 45 / 100 * 4 / 3 }

func (f *fleet) config(id string) string { return filepath.Join(f.dir, id+".yaml") }

func (f *fleet) socket(id string) string { return filepath.Join(f.dir, id+".sock") }

// process is a daemon or an application.
type process struct {
	*exec.Cmd
	f     *fleet
	name  string
	lines chan string // what an application prints, except what it has led
	log   strings.Builder
	done  chan struct{}
}

func (f *fleet) start(name string, app bool, argv ...string) *process {
	f.t.Helper()
	p := &process{Cmd: exec.Command(argv[0], argv[1:]...), f: f, name: name, lines: make(chan string, 10000), done: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	p.Stdout, p.Stderr = in, in
	if err := p.Start(); err != nil {
		f.t.Fatal(err)
	}
	in.Close()
	go p.read(out, app)
	f.t.Cleanup(func() {
		p.Process.Signal(syscall.SIGCONT)
		if app {
			p.Process.Kill()
		} else {
			p.Process.Signal(syscall.SIGTERM)
		}
		select {
		case <-p.done:
		case <-time.After(waitTimeout):
			f.t.Errorf("%s does not end", name)
			p.Process.Kill()
			<-p.done
		}
		if f.t.Failed() {
			f.t.Logf("--- %s\n%s", name, p.log.String())
		}
	})
	return p
}

// read reads what a process prints, until its end.
func (p *process) read(out io.ReadCloser, app bool) {
	defer close(p.done)
	defer p.Wait()
	defer out.Close()
	for in := bufio.NewScanner(out); in.Scan(); {
		line := in.Text()
		p.log.WriteString(line + "\n")
		l := term{app: p.name}
		switch n, _ := fmt.Sscanf(line, "led %d %d %d", &l.from, &l.to, &l.token); {
		case !app:
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
}

// await waits until an application has printed a line. It is for any goroutine, and reports false if it fails.
func (p *process) await(want string) bool {
	for limit := time.After(waitTimeout); ; {
		select {
		case line := <-p.lines:
			if line == want {
				return true
			}
		case <-p.done:
			p.f.t.Errorf("%s has ended", p.name)
			return false
		case <-limit:
			p.f.t.Errorf("%s does not print %q", p.name, want)
			return false
		}
	}
}

// daemon starts a daemon with an HTTP socket and no work.
func (f *fleet) daemon(id string, extra string) *process {
	f.t.Helper()
	text := fmt.Sprintf("node: {id: %s}\nzookeeper: {servers: [%s], root: /c, session_timeout: %s, session_file: %s}\n"+
		"election: {settle: 0s}\nhttp: {listen: 'unix:%s'}\n%s\n", id, f.zk.Addr(), f.session, filepath.Join(f.dir, id+".session"), f.socket(id), extra)
	if err := os.WriteFile(f.config(id), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return f.start(id, false, f.binary, "run", "--create", "--config", f.config(id))
}

// app starts an application in a language beside a daemon.
func (f *fleet) app(language, id, group string, stubborn bool) *process {
	f.t.Helper()
	name := language + "@" + id
	return f.start(name, true, append(f.apps[language], f.socket(id), group, fmt.Sprint(f.lease().Nanoseconds()), fmt.Sprint(stubborn))...)
}

// child returns the process of a node with a role: daemon or keeper.
func (p *process) child(role string) int {
	p.f.t.Helper()
	pid := 0
	testhelper.Eventually(p.f.t, waitTimeout, p.name+" has a "+role, func() bool {
		children, _ := exec.CommandContext(p.f.t.Context(), "pgrep", "-P", strconv.Itoa(p.Process.Pid)).Output()
		for field := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == role {
				pid, _ = strconv.Atoi(field)
			}
		}
		return pid != 0
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
