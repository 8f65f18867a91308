package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// NodeWriter writes the record of a member's own node. Usually nothing else has written it, so its version is known and
// it need not be read. It is not safe for concurrent use.
type NodeWriter struct {
	conn  registrar
	paths cluster.Paths
	self  cluster.Incarnation

	// Whether version and since are those of the record in ZooKeeper.
	known   bool
	version int32
	since   time.Time
}

// NewNodeWriter returns a writer for the record that [Register] has created, with its Since.
func NewNodeWriter(conn registrar, p cluster.Paths, self cluster.Incarnation, since time.Time) *NodeWriter {
	return &NodeWriter{conn: conn, paths: p, self: self, known: true, since: since}
}

// Write writes the record, except for its Since, which stays as it is.
func (w *NodeWriter) Write(ctx context.Context, rec cluster.Node) error {
	if w.known {
		err := w.set(ctx, rec)
		if !errors.Is(err, cluster.ErrBadVersion) {
			return err
		}
	}
	path := w.paths.Node(w.self.ID)
	data, stat, err := w.conn.Get(ctx, path, false)
	if err != nil {
		return err
	}
	if stat.Owner != w.conn.SessionID() {
		return fmt.Errorf("it belongs to session 0x%x", stat.Owner)
	}
	w.version, w.since = stat.Version, cluster.ReadStored[cluster.Node](path, data, stat, true).Record.Since
	return w.set(ctx, rec)
}

// set writes the record if its version is known. Otherwise, or after an unknown outcome, it must be read first.
func (w *NodeWriter) set(ctx context.Context, rec cluster.Node) error {
	rec.Since = w.since
	results, err := w.conn.Do(ctx, w.paths.NodeTx(w.self.Name, w.version, rec)...)
	if w.known = err == nil; w.known {
		w.version = results[1].Version
	}
	return err
}
