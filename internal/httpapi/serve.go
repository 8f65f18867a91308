package httpapi

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
)

// Listener is where to listen, and how.
type Listener struct {
	// Addr is host:port or unix:/path.
	Addr string
	Web  Web
	Log  *slog.Logger
}

// Serve listens until ctx is over, and returns when all that it has begun has ended.
func (l Listener) Serve(ctx context.Context, handler http.Handler) error {
	listener, err := listen(ctx, l.Addr)
	if err != nil {
		return err
	}
	return l.serve(ctx, listener, handler, maxClients)
}

// maxClients bounds the connections: each costs a descriptor, and the daemon must never lack one for ZooKeeper or its child.
const maxClients = 256

func (l Listener) serve(ctx context.Context, listener net.Listener, handler http.Handler, clients int) error {
	defer listener.Close()
	if l.Log == nil {
		l.Log = slog.New(slog.DiscardHandler)
	}
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: baseOf(base), ConnContext: withConn, ErrorLog: log.New(complaints{l.Log}, "", 0),
	}
	places := &places{Listener: listener, limit: clients}
	server.ConnState = places.changed
	served := make(chan error, 1)
	go func() {
		if l.Web.path == "" {
			l.Log.Info("Listening on", "address", address(listener)) // as the toolkit says
			served <- server.Serve(places)
			return
		}
		passwords := newPasswords()
		server.Handler = passwords.behind(handler)
		guarded := &beginning{Listener: places, begin: func() { server.Handler = passwords.before(server.Handler) }}
		served <- toolkit.Serve(guarded, server, &toolkit.FlagConfig{WebConfigFile: &l.Web.path}, l.Log)
	}()
	select {
	case err := <-served:
		server.Close()
		return err
	case <-ctx.Done():
	}
	// Whoever waits for an event is let go by the base context; the others have an answer coming, or not for long.
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

// baseOf has every request end with ctx.
func baseOf(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

// address is where it can be reached: a socket was made under another name.
func address(l net.Listener) string {
	if s, ok := l.(*socket); ok {
		return unixPrefix + s.path
	}
	return l.Addr().String()
}

// complaints are the server's own messages. Most tell what strangers do, who may do that without end; a panic is ours.
type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
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
