// Package zkserver starts real ZooKeeper servers on loopback ports for tests, the demo and the benchmark. Each has its
// own directory. A server dies with the process that started it.
package zkserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options configure a server. The zero value is a fast server for tests.
type Options struct {
	// Dir is the directory for data and log. If it is empty, the server uses a temporary directory, which Stop removes.
	Dir string
	// Tick is ZooKeeper's tickTime. The default is 200 ms.
	Tick time.Duration
	// MinSession and MaxSession are the limits of session timeouts. The defaults are 2 and 600 ticks.
	MinSession, MaxSession time.Duration
	// PeerPort, if set, returns the port at which server from of an ensemble reaches the port of server to, so that a
	// test can put a proxy between them. Servers are counted from 0.
	PeerPort func(from, to, port int) (int, error)
	// Sync makes every write wait for the disk, as in production. Tests and the demo do not need durability.
	Sync bool
	// ExtraConfig has additional lines for the configuration file.
	ExtraConfig []string
	// Java has further options for the virtual machine.
	Java []string
	// TLS configures a second port with TLS; nil for none.
	TLS *TLS
}

func (o *Options) setDefaults() {
	if o.Tick <= 0 {
		o.Tick = 200 * time.Millisecond
	}
	if o.MinSession <= 0 {
		o.MinSession = 2 * o.Tick
	}
	if o.MaxSession <= 0 {
		o.MaxSession = 600 * o.Tick
	}
}

// Server is one running ZooKeeper server.
type Server struct {
	opt         Options
	dir         string
	removeDir   bool // Stop removes dir
	port        int
	securePort  int // the port for TLS
	config      string
	extraConfig string // of the configuration
	id          int    // in a [Dynamic] ensemble
	member      string // its entry in the configuration of one

	mu   sync.Mutex
	proc *process
}

// ForTest starts a single server until the end of a test.
func ForTest(t testing.TB, opt Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

// Start starts a single server and waits until it serves clients. The caller must stop it.
func Start(ctx context.Context, opt Options) (*Server, error) {
	var last error
	// Another process may take the chosen port before the server does.
	for range 3 {
		s, err := newServer(opt, "")
		if err != nil {
			return nil, err
		}
		if last = s.Restart(ctx); last == nil {
			return s, nil
		}
		s.Stop()
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// newServer creates the directory and the configuration file of a server. extra is appended to the configuration.
func newServer(opt Options, extra string) (*Server, error) {
	opt.setDefaults()
	s := &Server{opt: opt, dir: opt.Dir}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "zkelectd-zookeeper-")
		if err != nil {
			return nil, err
		}
		s.dir, s.removeDir = dir, true
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	s.port, s.securePort = ports[0], ports[1]
	s.extraConfig = opt.TLS.config(s.securePort) + extra
	return s, s.writeConfig()
}

// SetMaxSession changes the longest session timeout that the server grants. It takes effect at the next start.
func (s *Server) SetMaxSession(timeout time.Duration) error {
	s.opt.MaxSession = timeout
	return s.writeConfig()
}

// Wipe kills the server and removes all of its data, so that it is empty after a restart.
func (s *Server) Wipe() error {
	s.Kill()
	data := filepath.Join(s.dir, "data")
	id, err := os.ReadFile(filepath.Join(data, "myid"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o700); err != nil || len(id) == 0 {
		return err
	}
	return os.WriteFile(filepath.Join(data, "myid"), id, 0o600)
}

func (s *Server) writeConfig() error {
	data := filepath.Join(s.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	s.config = filepath.Join(s.dir, "zoo.cfg")
	text := fmt.Sprintf(`dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
tickTime=%d
minSessionTimeout=%d
maxSessionTimeout=%d
initLimit=50
syncLimit=25
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
%s%s`, data, s.port, s.opt.Tick.Milliseconds(), s.opt.MinSession.Milliseconds(), s.opt.MaxSession.Milliseconds(), lines(s.opt.ExtraConfig), s.extraConfig)
	return os.WriteFile(s.config, []byte(text), 0o600)
}

// Addr returns the address, as host:port, for clients.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "zookeeper.log") }

// Restart kills the server if it runs, starts it with the same port and data, and waits until it serves clients.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	if err := s.startProcess(); err != nil {
		return err
	}
	return s.waitServing(ctx)
}

// EnsureStarted starts the server if it is not running. It does not wait: without a quorum the server would not serve
// clients.
func (s *Server) EnsureStarted() error {
	if proc := s.process(); proc != nil {
		select {
		case <-proc.done:
		default:
			return nil
		}
	}
	return s.startProcess()
}

func (s *Server) startProcess() error {
	proc, err := startJava(s.dir, s.LogFile(), s.config, s.opt)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	return nil
}

// waitServing waits up to a minute until the server serves clients.
func (s *Server) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	proc := s.process()
	for {
		// A server without a quorum answers "not currently serving requests".
		if answer, err := s.FourLetterWord(ctx, "srvr"); err == nil && strings.Contains(answer, "Mode:") &&
			s.secureReady(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-proc.done:
			return fmt.Errorf("the ZooKeeper server ended: %s", tail(s.LogFile()))
		case <-ctx.Done():
			return fmt.Errorf("the ZooKeeper server at %s does not serve: %w; its log ends with: %s", s.Addr(),
				ctx.Err(), tail(s.LogFile()))
		}
	}
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-500):]))
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Kill kills the server, like a crash, and waits until it has ended.
func (s *Server) Kill() {
	if proc := s.process(); proc != nil {
		proc.kill()
	}
}

// Pause stops the server with SIGSTOP.
func (s *Server) Pause() { s.process().pause() }

// Resume lets a paused server continue.
func (s *Server) Resume() { s.process().resume() }

// Stop kills the server and removes its directory if it is a temporary one.
func (s *Server) Stop() error {
	s.Kill()
	if s.removeDir {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// FourLetterWord sends one of ZooKeeper's four-letter words and returns the answer.
func (s *Server) FourLetterWord(ctx context.Context, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	var answer strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		answer.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if answer.Len() == 0 {
		return "", errors.New("no answer to " + word)
	}
	return answer.String(), nil
}

// Stats returns the numeric values of the mntr command.
func (s *Server) Stats(ctx context.Context) (map[string]int64, error) {
	answer, err := s.FourLetterWord(ctx, "mntr")
	if err != nil {
		return nil, err
	}
	stats := make(map[string]int64)
	for line := range strings.Lines(answer) {
		var n int64
		key, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if _, err := fmt.Sscan(value, &n); err == nil {
			stats[key] = n
		}
	}
	return stats, nil
}

// FreePorts returns n loopback ports that are free now. They are below the kernel's range for outgoing connections, so
// that no such connection takes a port before the server does, or while the server is down.
func FreePorts(n int) ([]int, error) {
	const first, end, tries = 10_000, 32_000, 1000
	ports := make([]int, 0, n)
	var last error
	for range tries {
		port := first + rand.IntN(end-first)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		defer l.Close() // only at the end, so that the ports differ
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no free port for a ZooKeeper server: %w", last)
}

func lines(settings []string) string {
	var b strings.Builder
	for _, line := range settings {
		b.WriteString(line + "\n")
	}
	return b.String()
}
