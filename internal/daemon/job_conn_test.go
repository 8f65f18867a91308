package daemon

import (
	"context"
	"testing"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// A host that waits for its turn may be cut off meanwhile: its job is begun in another session.
func TestAJobOutlivesItsSession(t *testing.T) {
	server, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	var cfg config.Config
	cfg.ZooKeeper.Servers, cfg.ZooKeeper.SessionTimeout = []string{server.Addr()}, 6*time.Second
	open := func(ctx context.Context) (*zk.Session, error) { return operator.Connect(ctx, cfg) }
	c := jobConn{open: open}
	first, err := c.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close(t.Context())
	<-first.Done()
	if _, _, err := c.Get(t.Context(), "/", false); err != nil {
		t.Error(err)
	}
	defer c.close(t.Context())
	if again, err := c.now(t.Context()); err != nil || again != c.session || again == first {
		t.Errorf("another session although this one lives: %v", err)
	}
}
