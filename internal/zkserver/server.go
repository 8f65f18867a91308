// Package zkserver starts real ZooKeeper servers in private directories on loopback ports: for tests, the demo and the
// benchmark. A server dies with the process that started it.
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
	"time"
)

// Options of a server; the zero value is a quick server for tests.
type Options struct {
	// Dir holds data and log. Empty: a temporary directory, removed by Stop.
	Dir string
	// Tick is ZooKeeper's tickTime, default 200 ms.
	Tick time.Duration
	// MinSession and MaxSession clamp session timeouts; default 2 and 600 ticks.
	MinSession, MaxSession time.Duration
	// Between, if set, is the port under which an ensemble's server from (counted from 0) reaches the port of server to, so
	// that a test can part them.
	Between func(from, to, port int) (int, error)
	// Sync makes every write wait for the disk, as in production. Off by default: tests and demo need no durability.
	Sync bool
	// Settings are further lines of the configuration.
	Settings []string
	// TLS opens a second port, which speaks TLS; nil for none.
	TLS *TLS
}

func (o *Options) defaults() {
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
	opt     Options
	dir     string
	private bool // dir is ours to remove
	port    int
	secure  int // the port for TLS
	config  string
	extra   string // of the configuration

	mu   sync.Mutex
	proc *process
}

// Start starts a single server and waits until it serves.
func Start(ctx context.Context, opt Options) (*Server, error) {
	var last error
	// Another process may take the port between its choice and its use.
	for range 3 {
		s, err := prepare(opt, "")
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

// prepare makes the directory and the configuration. extra goes into the latter.
func prepare(opt Options, extra string) (*Server, error) {
	opt.defaults()
	s := &Server{opt: opt, dir: opt.Dir}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "zkelectd-zookeeper-")
		if err != nil {
			return nil, err
		}
		s.dir, s.private = dir, true
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	s.port, s.secure = ports[0], ports[1]
	s.extra = opt.TLS.settings(s.secure) + extra
	return s, s.configure()
}

// SetMaxSession changes the longest session timeout that the server grants from its next start on.
func (s *Server) SetMaxSession(timeout time.Duration) error {
	s.opt.MaxSession = timeout
	return s.configure()
}

// Wipe kills the server and removes all of its data, so that it comes back empty.
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

func (s *Server) configure() error {
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
%s%s`, data, s.port, s.opt.Tick.Milliseconds(), s.opt.MinSession.Milliseconds(), s.opt.MaxSession.Milliseconds(), lines(s.opt.Settings), s.extra)
	return os.WriteFile(s.config, []byte(text), 0o600)
}

// Addr is host:port for clients.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// LogFile is where the server logs to.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "zookeeper.log") }

// Restart starts the server again on the same port and data, after Kill, and waits until it serves.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	if err := s.launch(); err != nil {
		return err
	}
	return s.serving(ctx)
}

// Revive starts the server again if it is dead, and does not wait: without a quorum it would be in vain.
func (s *Server) Revive() error {
	if proc := s.process(); proc != nil {
		select {
		case <-proc.done:
		default:
			return nil
		}
	}
	return s.launch()
}

func (s *Server) launch() error {
	proc, err := startJava(s.dir, s.LogFile(), s.config, s.opt.Sync)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	return nil
}

// serving waits until the server answers clients.
func (s *Server) serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	proc := s.process()
	for {
		// A server without a quorum answers "not currently serving requests".
		if answer, err := s.Ask(ctx, "srvr"); err == nil && strings.Contains(answer, "Mode:") && s.secureListens(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-proc.done:
			return fmt.Errorf("the ZooKeeper server ended: %s", tail(s.LogFile()))
		case <-ctx.Done():
			return fmt.Errorf("the ZooKeeper server at %s does not serve: %w; its log ends with: %s", s.Addr(), ctx.Err(), tail(s.LogFile()))
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

// Kill ends the server as a crash does.
func (s *Server) Kill() {
	if proc := s.process(); proc != nil {
		proc.kill()
	}
}

// Pause stops the server with SIGSTOP; Resume lets it go on.
func (s *Server) Pause() { s.process().pause() }

// Resume ends a Pause.
func (s *Server) Resume() { s.process().resume() }

// Stop ends the server and removes its directory if it was a temporary one.
func (s *Server) Stop() error {
	s.Kill()
	if s.private {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// Ask sends a four-letter word and returns the answer.
func (s *Server) Ask(ctx context.Context, word string) (string, error) {
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

// Stats returns the figures of mntr.
func (s *Server) Stats(ctx context.Context) (map[string]int64, error) {
	answer, err := s.Ask(ctx, "mntr")
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

// FreePorts chooses n loopback ports that are free now. They lie below the range from which the kernel takes the ports of
// outgoing connections: one of those must not take a port before the server does, or while the server is down.
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
		defer l.Close() // all at the end, so that they differ
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
