package web

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
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
	switch path, _ := strings.CutPrefix(e.Addr, unixPrefix); {
	case e.Private:
		return listenUnix(ctx, path, privateMode)
	case e.Setting == "":
		return listen(ctx, e.Addr)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; choose another address", e.Setting, e.Addr, err)
	}
	return l, nil
}

// maxConns limits the number of connections: each needs a file descriptor, and the daemon must always have enough of them for
// ZooKeeper and its child.
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
	server.ConnState = limiter.connState
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

// errorLogWriter logs the messages of http.Server. Most of them are caused by clients, who could fill the log with them, so they
// are logged at debug level. A panic is a bug in this program.
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
