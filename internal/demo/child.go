package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// answer is what the demo's child says of itself.
type answer struct {
	Node string `json:"node"`
	Site string `json:"site"`
	Term string `json:"term"`
	PID  int    `json:"pid"`
}

// Child is the leader-only child of the demo: an HTTP server that answers who it is and with which term. It writes its
// address into dir, and never gets ready while the file <node>.stall is there.
func Child(ctx context.Context, dir string) error {
	me := answer{Node: os.Getenv("ZKELECTD_NODE"), Site: os.Getenv("ZKELECTD_SITE"), Term: os.Getenv("ZKELECTD_TERM"), PID: os.Getpid()}
	if _, err := os.Stat(filepath.Join(dir, me.Node+".stall")); err == nil {
		<-ctx.Done()
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, me.Node+".addr"), []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(me)
		}),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return fmt.Errorf("cannot notify the daemon: %w", err)
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
