package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/secretfile"
)

// Endpoint is the address at which a daemon serves HTTP, and its web configuration.
type Endpoint struct {
	// Addr is host:port or unix:/path. With Private, only this user and root can connect to a path, else its group as
	// well.
	Addr    string
	Private bool
	// Setting is the one that Addr is from, as errors name it; empty for http.listen.
	Setting string
	Web     Config
	Log     *slog.Logger
}

// Serve listens and serves requests until ctx is done. It returns when all connections and goroutines have ended.
func (e Endpoint) Serve(ctx context.Context, handler http.Handler) error {
	listener, err := e.listen(ctx)
	if err != nil {
		return err
	}
	return e.serve(ctx, listener, handler, maxConns)
}

func (e Endpoint) listen(ctx context.Context) (net.Listener, error) {
	path, isPath := strings.CutPrefix(e.Addr, unixPrefix)
	switch {
	case e.Private:
		return listenUnix(ctx, path, privateMode)
	case isPath:
		l, err := listenUnix(ctx, path, socketMode)
		if err != nil {
			return nil, fmt.Errorf("http.listen %s: %w", e.Addr, err)
		}
		return l, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; choose another address", cmp.Or(e.Setting, "http.listen"), e.Addr, err)
	}
	return l, nil
}

// maxConns limits the number of connections: each needs a file descriptor, and the daemon must always have enough of
// them for ZooKeeper and its child.
const maxConns = 256

func (e Endpoint) serve(ctx context.Context, listener net.Listener, handler http.Handler, maxConns int) error {
	defer listener.Close()
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: baseContext(base), ConnContext: withConn, ErrorLog: log.New(errorLogWriter{e.Log}, "", 0),
	}
	limiter := &connLimiter{Listener: listener, limit: maxConns}
	served := make(chan error, 1)
	go func() {
		if e.Web.path == "" {
			e.Log.Info("Listening on", "address", displayAddress(listener)) // the same message as the toolkit's
			served <- server.Serve(limiter)
			return
		}
		served <- toolkit.Serve(limiter, server, &toolkit.FlagConfig{WebConfigFile: &e.Web.path}, e.Log)
	}()
	select {
	case err := <-served:
		server.Close()
		return err
	case <-ctx.Done():
	}
	// The base context ends the event streams. The other requests end soon.
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	if server.Shutdown(limited) != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// baseContext is an http.Server.BaseContext hook that makes ctx the parent of all request contexts.
func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

// displayAddress returns the address at which clients reach l. A unix socket was created under another name.
func displayAddress(l net.Listener) string {
	if s, ok := l.(*socketListener); ok {
		return unixPrefix + s.path
	}
	return l.Addr().String()
}

// errorLogWriter logs the messages of http.Server. Most of them are caused by clients, who could fill the log with
// them, so they are logged at debug level. A panic is a bug in this program.
type errorLogWriter struct{ log *slog.Logger }

func (c errorLogWriter) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelDebug
	switch {
	case strings.Contains(text, "panic"):
		level = slog.LevelError
	case strings.Contains(text, "Accept error"):
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

// unixPrefix is the prefix of addresses that are paths of unix sockets.
const unixPrefix = "unix:"

// The file mode controls who can connect: the daemon's user and group, or the user alone.
const (
	socketMode  = 0o660
	privateMode = 0o600
)

// listenUnix creates the socket in a private directory, and links it to path when it has its mode and accepts
// connections. So a socket at path that refuses connections is always stale. The lock on the directory keeps two
// processes that start at the same time from removing each other's socket.
func listenUnix(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w; create the directory first (RuntimeDirectory= in a systemd unit)", err)
	}
	defer dir.Close()
	if err := secretfile.CheckDirectory(dir.Name()); err != nil {
		return nil, fmt.Errorf("its directory %w", err)
	}
	if err := lockDir(ctx, dir); err != nil {
		return nil, err
	}
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(dir.Name(), ".z") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socketListener{Listener: listener, path: path}
	s.close = sync.OnceValue(s.remove) // once: a later socket's file may have the same inode number
	if err = os.Chmod(hidden, mode); err == nil {
		err = os.Link(hidden, path)
	}
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return s, nil
}

// lockTimeout limits the wait for another process that starts at the same time.
const lockTimeout = 5 * time.Second

// lockDir waits for the lock on a directory. Closing dir releases it.
func lockDir(ctx context.Context, dir *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("another process holds the lock on %s: stop it, or choose another directory (--http)", dir.Name())
		}
	}
}

// removeStaleSocket removes path if it is a socket that no process listens on. It returns an error if path is anything
// else.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("the file exists and is not a socket: remove it, or choose another path (--http)")
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(limited, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("another process listens on it: stop that process, or choose another path (--http)")
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("cannot determine whether another process listens on it: %w", err)
}

// socketListener removes its file when it is closed, unless another process has replaced it.
type socketListener struct {
	net.Listener
	path  string
	file  os.FileInfo
	close func() error
}

func (s *socketListener) Close() error { return s.close() }

func (s *socketListener) remove() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.Listener.Close()
}

// Hosts are the names that requests may have in their Host header. They protect against DNS rebinding: if an attacker
// makes a page's host name resolve to this host, a browser treats the daemon as the page's own origin, and only the
// Host header shows the difference. IP addresses are always allowed, because a browser sends one only if it was asked
// for that address. So are requests without a Host header, which browsers do not send.
type Hosts struct {
	own     []string
	allowed atomic.Pointer[[]string]
}

// NewHosts returns the names that are always allowed: those of the loopback, the host name, the node id, and the host
// in listen.
func NewHosts(listen, node string) *Hosts {
	h := &Hosts{own: []string{"localhost", "*.localhost", strings.ToLower(node)}}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		h.own = append(h.own, strings.ToLower(name), strings.ToLower(short))
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h.own = append(h.own, strings.ToLower(host))
	}
	h.SetAllowed(nil)
	return h
}

// SetAllowed replaces the additional names, from http.allowed_hosts. *.example.com allows every name below example.com,
// and * every name.
func (h *Hosts) SetAllowed(allowed []string) {
	lower := make([]string, len(allowed))
	for i, name := range allowed {
		lower[i] = hostName(name)
	}
	h.allowed.Store(&lower)
}

// hostName returns a name in the form in which names are compared.
func hostName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Check returns an error with advice if requests may not have this Host header.
func (h *Hosts) Check(header string) error {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	if host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return nil
	}
	name := hostName(host)
	if slices.ContainsFunc(slices.Concat(*h.allowed.Load(), h.own),
		func(pattern string) bool { return matchesHost(pattern, name) }) {
		return nil
	}
	return fmt.Errorf("the Host header is %q, which is not a name of this daemon: if it is, add it to "+
		"http.allowed_hosts", sanitizeName(cmp.Or(name, host)))
}

func matchesHost(pattern, name string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, below)
	}
	return pattern == name
}
