package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve listens on addr, host:port or unix:/path, until ctx is over, and returns when all that it has begun has ended.
func Serve(ctx context.Context, addr string, handler http.Handler) error {
	listener, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	return serve(ctx, listener, handler, maxClients)
}

// maxClients bounds the connections: each costs a descriptor, and the daemon must never lack one for ZooKeeper or its child.
const maxClients = 256

func serve(ctx context.Context, listener net.Listener, handler http.Handler, clients int) error {
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: baseOf(base),
	}
	places := &bounded{Listener: listener, free: clients}
	server.ConnState = places.turned
	served := make(chan error, 1)
	go func() { served <- server.Serve(places) }()
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
