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

// answer is what the demo's child answers over HTTP.
type answer struct {
	Node string `json:"node"`
	Site string `json:"site"`
	Term string `json:"term"`
	PID  int    `json:"pid"`
}

// ChildOptions are the options of the demo's child.
type ChildOptions struct {
	// Dir is the directory to which the child writes the address of its HTTP server, as <node>.addr; empty for no server. While
	// it contains a file <node>.stall, the child never becomes ready.
	Dir string
	// Every is the time between two lines of output; 0 for no output.
	Every time.Duration
	Out   io.Writer
}

// Child runs the leader-only child of the demo, which reports its node and term over HTTP or in its output until ctx ends. The output
// also has the group, with its slot if there is one.
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

// listen listens on a free port, and writes its address to dir.
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

// work prints a line at intervals until ctx ends.
func (me answer) work(ctx context.Context, opt ChildOptions) error {
	if opt.Every <= 0 {
		return nil
	}
	group := os.Getenv("ZKELECTD_GROUP")
	if slot := os.Getenv("ZKELECTD_SLOT"); slot != "" {
		group += "/" + slot
	}
	say := func(what string) {
		fmt.Fprintf(opt.Out, "%s %s group=%s node=%s site=%s term=%s\n", time.Now().UTC().Format(time.RFC3339Nano), what, group, me.Node, me.Site, me.Term)
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
