package sim

import (
	"context"
	"errors"
	"iter"
	"time"

	"zkelectd/internal/cluster"
)

// conn is a session for product code that waits for its answers. That code runs in a coroutine, which yields while it waits.
type conn struct {
	in    *instance
	host  bool // used by the host, not by the instance
	next  func() (struct{}, bool)
	yield func(struct{}) bool
	runs  bool
}

// run runs f in a coroutine, until it ends or the instance does.
func (in *instance) run(f func(c *conn)) {
	c := &conn{in: in}
	var stop func()
	c.next, stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		f(c)
	})
	in.stops = append(in.stops, func() {
		if c.runs { // the coroutine itself ends the instance: it cannot stop before it has returned
			in.m.w.after(0, stop)
			return
		}
		stop()
	})
	c.resume()
}

// resume continues the coroutine, unless it is running.
func (c *conn) resume() {
	if !c.runs {
		c.runs = true
		c.next()
		c.runs = false
	}
}

// wait sends a request and waits for the answer.
func (c *conn) wait(r *request) reply {
	answered, rep := false, reply{err: errStopped}
	r.done = func(got reply) {
		rep, answered = got, true
		c.resume()
	}
	if !c.host {
		r.from = c.in
	}
	c.in.s.send(r)
	for !answered {
		if !c.yield(struct{}{}) {
			return reply{err: errStopped}
		}
	}
	return rep
}

// sleep waits for a while. It returns false if the coroutine must end.
func (c *conn) sleep(d time.Duration) bool {
	over := false
	c.in.m.w.after(d, func() {
		c.in.m.process(c.in.s, func() {
			over = true
			c.resume()
		})
	})
	for !over {
		if !c.yield(struct{}{}) {
			return false
		}
	}
	return true
}

// isEnd reports whether there will be no more answers.
func isEnd(err error) bool {
	return errors.Is(err, errStopped) || errors.Is(err, cluster.ErrSessionEnded)
}

// Get implements [cluster.Reader].
func (c *conn) Get(_ context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	rep := c.wait(&request{path: path, watch: watch})
	return rep.data, rep.stat, rep.err
}

// Children implements [cluster.Reader].
func (c *conn) Children(_ context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	rep := c.wait(&request{path: path, children: true, watch: watch})
	return rep.names, rep.stat, rep.err
}

// Do implements [cluster.Writer].
func (c *conn) Do(_ context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	rep := c.wait(&request{ops: ops})
	return rep.results, rep.err
}

// SessionID implements [cluster.Owner].
func (c *conn) SessionID() int64 { return c.in.s.id }
