package oneshot

import (
	"context"
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
)

// lossyConn loses the connection at the first read of a znode.
type lossyConn struct {
	cluster.ReadWriter
	path string
	lost bool
}

func (c *lossyConn) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	if path == c.path && !c.lost {
		c.lost = true
		return nil, cluster.Stat{}, errors.New("the connection is lost")
	}
	return c.ReadWriter.Get(ctx, path, watch)
}

// That current could not be read does not mean that this host does not lead: a job that was skipped for that would
// count as a success.
func TestAFailedReadIsNoSkip(t *testing.T) {
	conn, p := storetest.NewServer().Connect(), cluster.Paths{Root: "/j"}
	if err := store.EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	elected, current := cluster.Elected{Term: 7, Node: "n1"}, cluster.Current{Term: 7, Node: "n1"}
	_, err := conn.Do(t.Context(),
		cluster.Op{Kind: cluster.OpCreate, Path: p.Elected(), Data: cluster.Encode(&elected)},
		cluster.Op{Kind: cluster.OpCreate, Path: p.Current(), Data: cluster.Encode(&current), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	lossy := &lossyConn{ReadWriter: conn, path: p.Current()}
	if err := (Ledger{Conn: lossy, Paths: p, Node: "n1"}).Begin(t.Context(), 7, Rule{}); err != nil || !lossy.lost {
		t.Error(err)
	}
}
