// Package client lets a program work only while the zkelectd daemon of its host leads, under a part of the leader's
// lease. It needs the daemon's unix socket, and Linux.
//
// The lease ends by the clock: no daemon kills the program. So it must ask [Client.IsLeader] before each step that no
// other host may do, and pass [Client.Token] to storage that can refuse older ones, because it can be suspended between
// the question and the step.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultSocket is that of the packages.
const DefaultSocket = "/run/zkelectd/api.sock"

// Client asks one daemon about one group. Its fields must not change once it is used. The zero value is ready for a
// daemon with one group. All methods are safe for concurrent use.
type Client struct {
	// Socket is the path of the daemon's unix socket; empty for [DefaultSocket].
	Socket string
	// Group is the group, with its slot as in ingest/3. It may be empty if the daemon has only one.
	Group string
	// StopBefore is how long before the end of a lease that is not extended the work is asked to stop, less than half of
	// the lease; 0 for a quarter of it.
	StopBefore time.Duration
	// OtherProcesses must be set if the work goes on in other processes when this one is dead.
	OtherProcesses bool

	running atomic.Bool
	lease   atomic.Pointer[lease] // nil unless work runs
	last    *lease                // under which work has run last; guarded by running
}

// lease is one that the daemon has handed out.
type lease struct {
	id    string
	token int64
	// offset is at most what this process's clock is ahead of the daemon's: they may be in different time namespaces.
	offset time.Duration
	end    atomic.Int64 // on this process's clock
	// stopBefore is how long before the end the work must be asked to stop. It grows with what is left after an extension,
	// but never shrinks: else a lease that ZooKeeper does not extend would be handed out again and again with ever less
	// time to stop.
	stopBefore time.Duration
}

// answer is what the daemon answers.
type answer struct {
	Leading  bool   `json:"leading"`
	Stop     bool   `json:"stop"`
	Lease    string `json:"lease"`
	Token    int64  `json:"token"`
	End      int64  `json:"lease_end_ns"`
	Boottime int64  `json:"boottime_ns"`
	Error    string `json:"error"`

	before time.Duration // the time before it was asked for
}

// RefusedError is the error of a request that the daemon refuses, such as one for an unknown group.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "zkelectd refuses a lease: " + e.Reason }

var (
	// ErrStop is the cause of the work's context once the daemon has asked it to stop, or its lease is about to end.
	ErrStop = errors.New("the lease is about to end")
	// ErrRunning is the error of a second RunWhileLeading at the same time.
	ErrRunning = errors.New("work runs already")
)

const (
	pollWait   = 10 * time.Second // for news
	retryPause = 100 * time.Millisecond
	answerTime = 2 * time.Second // for the daemon to answer when it need not wait
)

// IsLeader reports whether work runs whose lease is valid now. It goes by the clock, not by what the daemon has said
// last.
func (c *Client) IsLeader() bool { return c.Token() != 0 }

// Token returns the fencing token of the lease that is valid now; 0 for none. It grows with each leadership.
func (c *Client) Token() int64 {
	l := c.lease.Load()
	if l == nil {
		return 0
	}
	if end := time.Duration(l.end.Load()); now() >= end { // the clock is read last
		return 0
	}
	return l.token
}

// RunWhileLeading waits until this host leads, and calls work. The context of work ends when it must stop, before its
// lease does: the rest is for work to return in. When it has returned, another host may lead. RunWhileLeading returns
// what work does. It returns an error without having called it if ctx ends before, or the daemon refuses; while no
// daemon answers, it waits.
func (c *Client) RunWhileLeading(ctx context.Context, work func(context.Context) error) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	l, err := c.await(ctx)
	if err != nil {
		return err
	}
	c.last = l
	c.lease.Store(l)
	defer func() {
		c.lease.Store(nil)
		c.giveBack(l)
	}()
	running, stop := context.WithCancelCause(ctx)
	extending, end := context.WithCancel(context.WithoutCancel(ctx))
	extended := make(chan struct{})
	go func() {
		defer close(extended)
		c.extend(extending, l)
		stop(ErrStop)
	}()
	defer func() {
		end()
		<-extended
	}()
	return work(running)
}

// await returns a lease with enough time left.
func (c *Client) await(ctx context.Context) (*lease, error) {
	for {
		l, err := c.take(ctx)
		var refused *RefusedError
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &refused), errors.Is(err, fs.ErrPermission):
			return nil, err
		case err != nil:
			pause(ctx, retryPause)
		}
	}
}

// take is await if this host leads within a while; otherwise it returns nil.
func (c *Client) take(ctx context.Context) (*lease, error) {
	a, err := c.ask(ctx, "", pollWait)
	if err != nil || !a.Leading {
		return nil, err
	}
	l := &lease{id: a.Lease, token: a.Token, offset: -1 << 62, stopBefore: c.StopBefore}
	if c.last != nil && c.last.token == l.token {
		l.stopBefore = c.last.stopBefore
	}
	for wait := time.Duration(0); err == nil && a.Leading && !a.Stop; wait = pollWait {
		c.update(l, a)
		if time.Duration(l.end.Load())-now() > l.stopBefore*5/4 {
			// else it might be the rest of one whose offset was less exact
			return l, nil
		}
		// At first without a wait: the time before a request that has waited says little.
		a, err = c.ask(ctx, l.id, wait)
	}
	c.giveBack(l)
	return nil, err
}

// extend extends a lease until the work must stop, or ctx ends.
func (c *Client) extend(ctx context.Context, l *lease) {
	for ctx.Err() == nil {
		left := time.Duration(l.end.Load()) - now() - l.stopBefore
		if left <= 0 {
			return
		}
		limited, cancel := context.WithTimeout(ctx, left)
		a, err := c.ask(limited, l.id, min(left, pollWait))
		if err != nil {
			pause(limited, retryPause)
		}
		cancel()
		switch {
		case err != nil:
		case a.Lease != l.id: // a daemon that has started again does not know it: it ends
			return
		default:
			if c.update(l, a); a.Stop {
				return
			}
		}
	}
}

// update sets the end of a lease to that in an answer.
func (c *Client) update(l *lease, a answer) {
	if c.StopBefore == 0 {
		l.stopBefore = max(l.stopBefore, time.Duration(a.End-a.Boottime)/4)
	}
	l.offset = max(l.offset, a.before-time.Duration(a.Boottime))
	l.end.Store(a.End + int64(l.offset))
}

// giveBack returns a lease. If that fails, the others wait until its end.
func (c *Client) giveBack(l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	c.send(ctx, http.MethodDelete, url.Values{"lease": {l.id}})
}

// ask asks for a lease, or for the extension of one.
func (c *Client) ask(ctx context.Context, id string, wait time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+answerTime)
	defer cancel()
	query := url.Values{"wait": {wait.String()}, "bound": {strconv.FormatBool(!c.OtherProcesses)}}
	if id != "" {
		query.Set("lease", id)
	}
	return c.send(ctx, http.MethodGet, query)
}

func (c *Client) send(ctx context.Context, method string, query url.Values) (a answer, err error) {
	if c.Group != "" {
		query.Set("group", c.Group)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/v1/lease?"+query.Encode(), nil)
	if err != nil {
		return a, err
	}
	before := now()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", cmp.Or(c.Socket, DefaultSocket))
	}
	response, err := (&http.Transport{DisableKeepAlives: true, DialContext: dial}).RoundTrip(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if err = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&a); err != nil {
		return a, fmt.Errorf("%s: %w", response.Status, err)
	}
	a.before = before
	switch code := response.StatusCode; {
	case code >= 500:
		return answer{}, errors.New(a.Error)
	case code >= 400:
		return answer{}, &RefusedError{a.Error}
	}
	return a, nil
}

// now returns the time on CLOCK_BOOTTIME, which goes on while the host is suspended.
func now() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 1<<63 - 1 // every lease is over
	}
	return time.Duration(ts.Nano())
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
