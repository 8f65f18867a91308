package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// runChild runs the leader-only child, which reports its node and term over HTTP or in its output until ctx ends. While
// its directory contains a file <node>.stall, it never becomes ready.
func runChild(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	dir := flags.String("dir", "", "serve HTTP, and write the address to <node>.addr in this directory")
	every := flags.Duration("every", 0, "print a line with group, node and term this often")
	if err := flags.Parse(args); err != nil {
		return err
	}
	me := answer{Node: os.Getenv("ZKELECTD_NODE"), Site: os.Getenv("ZKELECTD_SITE"), Term: os.Getenv("ZKELECTD_TERM"),
		PID: os.Getpid()}
	if *dir != "" {
		if _, err := os.Stat(filepath.Join(*dir, me.Node+".stall")); err == nil {
			<-ctx.Done()
			return nil
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if *dir != "" {
		listener, err := me.listen(*dir)
		if err != nil {
			return err
		}
		g.Go(func() error { return me.serve(ctx, listener) })
	}
	g.Go(func() error { return me.work(ctx, *every) })
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
func (me answer) work(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return nil
	}
	group := os.Getenv("ZKELECTD_GROUP")
	if slot := os.Getenv("ZKELECTD_SLOT"); slot != "" {
		group += "/" + slot
	}
	say := func(what string) {
		fmt.Printf("%s %s group=%s node=%s site=%s term=%s\n", time.Now().UTC().Format(time.RFC3339Nano), what, group,
			me.Node, me.Site, me.Term)
	}
	tick := time.NewTicker(every)
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
