package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/request"
	"zkelectd/internal/whatif"
)

// OrderWriter gives orders on a session, and waits so long for it. A write that is not answered within Write ends the
// session.
type OrderWriter struct {
	Conn        cluster.ReadWriter
	Paths       cluster.Paths
	Config      config.Config
	Read, Write time.Duration
}

// Question asks about the group as it is, under the policy in force.
func (w OrderWriter) Question(ctx context.Context, snap cluster.Snapshot) (whatif.Question, error) {
	q, err := Question(w.Config, snap)
	q.Ask = Asker(ctx, w.Config)
	return q, err
}

// Give has an order made out for the group as it is, and writes it. Of two operators at once one wins, and the other is
// told by whom. The error matches [cluster.ErrUnknown] where the order may have been given.
func (w OrderWriter) Give(ctx context.Context, ask func(whatif.Question) (request.Given, error)) (request.Given, error) {
	last := int64(-1)
	for {
		snap, err := w.look(ctx)
		if err != nil {
			return request.Given{}, err
		}
		if c := snap.Control.Record; last >= 0 && c.Last != last {
			return request.Given{}, &request.RefusedError{Err: fmt.Errorf("not done: there was another order at the same time, %s; "+
				"see 'zkelectd status', and give yours again if it still holds", c.LastOrder)}
		}
		last = snap.Control.Record.Last
		q, err := w.Question(ctx, snap)
		if err != nil {
			return request.Given{}, err
		}
		given, err := ask(q)
		if err != nil {
			return given, err
		}
		err = w.write(ctx, w.Paths.ControlTx("", snap.Control, given.Control)...)
		switch {
		case err == nil:
			return given, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// The elector keeps its time in it, or another operator was faster.
		case errors.Is(err, cluster.ErrUnknown):
			return given, fmt.Errorf("the connection broke while znode %s was written: see 'zkelectd status' whether it was: %w", w.Paths.Control(), err)
		default:
			return given, fmt.Errorf("cannot write znode %s: %w", w.Paths.Control(), err)
		}
	}
}

func (w OrderWriter) look(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Read)
	defer cancel()
	return zkstore.ReadAll(ctx, w.Conn, w.Paths, false)
}

func (w OrderWriter) write(ctx context.Context, ops ...cluster.Op) error {
	ctx, cancel := context.WithTimeout(ctx, w.Write)
	defer cancel()
	_, err := w.Conn.Do(ctx, ops...)
	return err
}

// orderRequest is a request on its way to the loop's session.
type orderRequest struct {
	ctx     context.Context // of who asks
	request request.Request
	done    chan<- orderReply
}

type orderReply struct {
	given request.Given
	err   error
}

// Order gives an order on the daemon's own session, one after another. It matches [request.RefusedError] if the group is not
// such that it can be met, and [cluster.ErrUnknown] if it may have been given all the same.
func (d *Daemon) Order(ctx context.Context, r request.Request) (request.Given, error) {
	if err := r.Check(); err != nil {
		return request.Given{}, err
	}
	if why := d.View().NotReady(); why != "" {
		return request.Given{}, errors.New(why) // it fails closed: what is stale decides nothing
	}
	done := make(chan orderReply, 1)
	select {
	case d.requests <- orderRequest{ctx, r, done}:
	case <-d.quit.Done():
		return request.Given{}, errors.New("this daemon is stopping: ask another one")
	case <-ctx.Done():
		return request.Given{}, fmt.Errorf("other orders are still under way, give it again: %w", ctx.Err())
	}
	select {
	case end := <-done:
		return end.given, end.err
	case <-ctx.Done():
		return request.Given{}, fmt.Errorf("%w: the order is still under way (%w)", cluster.ErrUnknown, ctx.Err())
	}
}

// serveRequests gives orders until the session is over. It is a goroutine of its own: neither the loop nor the lease waits
// for it. A write has as long as the session itself, since giving up on it earlier would end a session that lives.
func (l *loop) serveRequests() {
	for {
		select {
		case e := <-l.d.requests:
			given, err := l.serveRequest(e)
			e.done <- orderReply{given, err}
		case <-l.life.Done():
			return
		}
	}
}

func (l *loop) serveRequest(e orderRequest) (request.Given, error) {
	src := l.d.onlooker.source.Load()
	if src == nil || src.session != l.s {
		return request.Given{}, errNoSession
	}
	if !l.s.Connected() {
		return request.Given{}, errNotConnected
	}
	orders := OrderWriter{Conn: l.s, Paths: src.paths, Config: src.cfg, Read: lookLimit, Write: l.budget.Session}
	ctx, cancel := context.WithCancel(l.life)
	defer cancel()
	gone := context.AfterFunc(e.ctx, cancel)
	given, err := orders.Give(ctx, func(q whatif.Question) (request.Given, error) {
		gone() // from here on it is given, whoever leaves: a write that is not waited for ends the session
		if err := e.ctx.Err(); err != nil {
			return request.Given{}, err
		}
		return e.request.Give(q)
	})
	if err == nil {
		o := e.request.Order
		l.d.log.Info("order given", "order", given.ID, "what", e.request.Kind, "by", o.By, "reason", o.Reason, "messages", given.Messages)
	}
	return given, err
}
