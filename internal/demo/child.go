package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
)

// answer is what the demo's child says of itself.
type answer struct {
	Node string `json:"node"`
	Site string `json:"site"`
	Term string `json:"term"`
	PID  int    `json:"pid"`
}

// ChildOptions are what the demo's child does.
type ChildOptions struct {
	// Dir is where the address of its HTTP server goes; it never gets ready while the file <node>.stall is there. Empty for
	// no server.
	Dir string
	// Every is how often it prints that it works; 0 for never.
	Every time.Duration
	Out   io.Writer
}

// Child is the leader-only child of the demo: it says who it is and with which term, over HTTP or in a line now and then.
func Child(ctx context.Context, opt ChildOptions) error {
	me := answer{Node: os.Getenv("ZKELECTD_NODE"), Site: os.Getenv("ZKELECTD_SITE"), Term: os.Getenv("ZKELECTD_TERM"), PID: os.Getpid()}
	if opt.Dir != "" {
		if _, err := os.Stat(filepath.Join(opt.Dir, me.Node+".stall")); err == nil {
			<-ctx.Done()
			return nil
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if opt.Dir != "" {
		listener, err := me.listen(opt.Dir)
		if err != nil {
			return err
		}
		g.Go(func() error { return me.serve(ctx, listener) })
	}
	g.Go(func() error { return me.work(ctx, opt) })
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return fmt.Errorf("cannot notify the daemon: %w", err)
	}
	return g.Wait()
}

// listen opens a port of the kernel's choice, and leaves its address in dir.
func (me answer) listen(dir string) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return listener, os.WriteFile(filepath.Join(dir, me.Node+".addr"), []byte(listener.Addr().String()), 0o600)
}

func (me answer) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(me)
		}),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// work says that it works, and no longer than it may.
func (me answer) work(ctx context.Context, opt ChildOptions) error {
	if opt.Every <= 0 {
		return nil
	}
	say := func(what string) {
		fmt.Fprintf(opt.Out, "%s %s node=%s site=%s term=%s\n", time.Now().UTC().Format(time.RFC3339Nano), what, me.Node, me.Site, me.Term)
	}
	tick := time.NewTicker(opt.Every)
	defer tick.Stop()
	for say("begins"); ; {
		select {
		case <-tick.C:
			say("works")
		case <-ctx.Done():
			say("ends")
			return nil
		}
	}
}
