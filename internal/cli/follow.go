package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/zk"
)

// untilInterrupted calls f, and ends it when the user interrupts the command, which is no error.
func untilInterrupted(cmd *cobra.Command, f func() error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), guard.NotIgnored(os.Interrupt, syscall.SIGTERM)...)
	defer stop()
	cmd.SetContext(ctx)
	if err := f(); ctx.Err() == nil {
		return err
	}
	return nil
}

// display is where [follow] shows what it has read.
type display[T any] interface {
	show(T) error
	// lost says that nothing can be read since a time, and why; after each further attempt it is called again.
	lost(since time.Time, reason error)
	// resumed says that the next show is not live since from, but again from to.
	resumed(from, to time.Time) error
	// refresh is called about every second.
	refresh() error
}

// update is the result of reading: a value, a sign that the last value still holds, or an error.
type update[T any] struct {
	value *T
	at    time.Time
	err   error
}

// follow reads the state of a group, with watches, and again after each change, and shows it until ctx is done. If
// ZooKeeper does not answer, or if the session ends, it says so and goes on, in a new session if necessary. live is
// when a read last succeeded; if it is zero, an error of the first read is returned. Later only one is that waiting
// does not end.
func follow[T any](ctx context.Context, g group, live time.Time, read func(context.Context, group) (T, error),
	d display[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	f := follower[T]{group: g, read: read, updates: make(chan update[T]), first: g.session}
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		f.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	lost := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err = d.refresh()
		case u := <-f.updates:
			switch {
			case u.err != nil && (live.IsZero() || errors.Is(u.err, cluster.ErrNoAuth)):
				return u.err
			case u.err != nil:
				lost = true
				d.lost(live, u.err)
				continue
			case lost:
				lost = false
				err = d.resumed(live, u.at)
			}
			if live = u.at; err == nil && u.value != nil {
				err = d.show(*u.value)
			}
		}
		if err != nil {
			return err
		}
	}
}

// follower reads the state of a group over as many sessions as it takes.
type follower[T any] struct {
	group   group
	first   *zk.Session
	read    func(context.Context, group) (T, error)
	updates chan update[T]
}

// checkInterval is how often a follower checks that ZooKeeper still answers, checkTimeLimit how long that may take, and
// retryInterval how long it waits after an error.
const (
	checkInterval  = time.Second
	checkTimeLimit = 3 * time.Second
	retryInterval  = time.Second
)

// run reads until ctx is done.
func (f *follower[T]) run(ctx context.Context) {
	defer f.closeOwn(ctx)
	for ctx.Err() == nil {
		var u update[T]
		if u.err = f.reopen(ctx); u.err == nil {
			value, err := f.read(ctx, f.group)
			u.value, u.err = &value, notLive(err)
		}
		f.send(ctx, u)
		if u.err == nil {
			u.err = f.awaitChange(ctx)
		}
		if u.err == nil {
			continue
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// send sends an update, unless ctx is done.
func (f *follower[T]) send(ctx context.Context, u update[T]) {
	u.at = time.Now()
	select {
	case f.updates <- u:
	case <-ctx.Done():
	}
}

// awaitChange waits until the state may have changed. It returns an error if ZooKeeper does not answer any more.
func (f *follower[T]) awaitChange(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.group.session.Wake():
			f.group.session.TakeHints()
			return nil
		case <-tick.C:
			err := notLive(f.check(ctx))
			f.send(ctx, update[T]{err: err})
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check returns an error if ZooKeeper does not answer.
func (f *follower[T]) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeLimit)
	defer cancel()
	_, _, err := f.group.session.Get(ctx, f.group.paths.Root, false)
	if errors.Is(err, cluster.ErrNoNode) || errors.Is(err, cluster.ErrNoAuth) {
		return nil // an answer
	}
	return err
}

// reopen replaces the session if it has ended: then changes may have been missed.
func (f *follower[T]) reopen(ctx context.Context) error {
	ended := f.group.session.Err()
	if ended == nil {
		return nil
	}
	f.send(ctx, update[T]{err: ended})
	s, err := connect(ctx, f.group.cfg, f.group.host.From)
	if err != nil {
		return err
	}
	f.closeOwn(ctx)
	f.group.session = s
	return nil
}

// closeOwn closes the session, unless it is the first, which belongs to the caller of [follow].
func (f *follower[T]) closeOwn(ctx context.Context) {
	if f.group.session != f.first {
		operator.Disconnect(ctx, f.group.session)
	}
}

// notLive replaces an error of a connection that is lost by one for people.
func notLive(err error) error {
	if errors.Is(err, cluster.ErrNotSent) || errors.Is(err, cluster.ErrUnknown) ||
		errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	return err
}

var errNoAnswer = errors.New("ZooKeeper does not answer")

// gap is the line of JSON for a time in which changes may have been missed.
type gap struct {
	Event string    `json:"event"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

func newGap(from, to time.Time) gap { return gap{"gap", from.UTC(), to.UTC()} }

// notices tells people on standard error that what they see is not live. It is a part of displays.
type notices struct {
	w    io.Writer
	told bool
}

func (n *notices) lost(since time.Time, reason error) {
	if !n.told {
		fmt.Fprintf(n.w, "zkelectd: not live since %s: %s; trying again\n", since.Format(clockFormat),
			printable(reason.Error()))
	}
	n.told = true
}

func (n *notices) resumed(from, to time.Time) error {
	n.told = false
	_, err := fmt.Fprintf(n.w, "zkelectd: live again, after %s\n", to.Sub(from).Round(time.Second))
	return err
}

func (n *notices) refresh() error { return nil }

// clockFormat is a time of day with its zone.
const clockFormat = "15:04:05 MST"
