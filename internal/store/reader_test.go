package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/zk"
)

// countingSession counts the requests of a reader.
type countingSession struct {
	ReaderSession
	reads atomic.Int32
}

func (c *countingSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	c.reads.Add(1)
	return c.ReaderSession.Get(ctx, path, watch)
}

func (c *countingSession) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	c.reads.Add(1)
	return c.ReaderSession.Children(ctx, path, watch)
}

// readingDaemon is a registered daemon with a running reader.
type readingDaemon struct {
	s    *zk.Session
	conn *countingSession
	r    *Reader
	in   cluster.Incarnation
	last cluster.Snapshot
}

func join(t *testing.T, p cluster.Paths, id string) *readingDaemon {
	t.Helper()
	s := open(t, zk.Options{})
	in, err := Register(t.Context(), s, p, cluster.Node{ID: id, Instance: cluster.NewInstance(1), Site: "dc1"})
	if err != nil {
		t.Fatal(err)
	}
	conn := &countingSession{ReaderSession: s.Group(p)}
	r := NewReader(ReaderOptions{Conn: conn, Paths: p, Self: in, Clock: clock(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return &readingDaemon{s: s, conn: conn, r: r, in: in}
}

func clock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) + time.Nanosecond }
}

func (r *readingDaemon) until(t *testing.T, what string, ok func(cluster.Snapshot) bool) {
	t.Helper()
	eventually(t, what, func() bool {
		select {
		case r.last = <-r.r.Snapshots():
		default:
		}
		return r.last.At > 0 && ok(r.last)
	})
}

// quiet waits until a reader has nothing more to read, and returns how many reads it has made since before.
func (r *readingDaemon) quiet(t *testing.T, before int32) int32 {
	t.Helper()
	last, since := int32(-1), time.Now()
	eventually(t, "quiet", func() bool {
		if n := r.conn.reads.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return last - before
}

func TestOnlyNeighborsNoticeAMember(t *testing.T) {
	var costs []int32
	for _, size := range []int{3, 12} {
		p := root(t, open(t, zk.Options{}))
		elector := join(t, p, "elector")
		follower := join(t, p, "follower")
		for i := range size {
			s := open(t, zk.Options{})
			if _, err := Register(t.Context(), s, p, cluster.Node{ID: fmt.Sprintf("n%d", i), Instance: cluster.NewInstance(1)}); err != nil {
				t.Fatal(err)
			}
		}
		elector.until(t, "all members", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == size+2 })
		atElector, atFollower := elector.quiet(t, 0), follower.quiet(t, 0)

		s := open(t, zk.Options{})
		if _, err := Register(t.Context(), s, p, cluster.Node{ID: "unrelated", Instance: cluster.NewInstance(1)}); err != nil {
			t.Fatal(err)
		}
		elector.until(t, "its coming", func(s cluster.Snapshot) bool { return len(s.Members) == size+3 })
		closeSession(t, s)
		elector.until(t, "its leaving", func(s cluster.Snapshot) bool { return len(s.Members) == size+2 })
		if n := follower.quiet(t, atFollower); n != 0 {
			t.Errorf("a follower read %d times when an unrelated member came and went", n)
		}
		costs = append(costs, elector.quiet(t, atElector))
	}
	// The number may differ by two, since two hints may arrive together or separately.
	if d := costs[1] - costs[0]; d > 2 || d < -2 {
		t.Errorf("the elector reads %d times with 5 members and %d times with 14", costs[0], costs[1])
	}
}

func TestSuccessorBecomesElector(t *testing.T) {
	p := root(t, open(t, zk.Options{}))
	a, b, c := join(t, p, "a"), join(t, p, "b"), join(t, p, "c")
	a.until(t, "three members", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == 3 })
	if b.last.Elector || c.last.Elector {
		t.Error("two electors")
	}
	closeSession(t, b.s) // c now follows a
	a.until(t, "the leaving of b", func(s cluster.Snapshot) bool { return len(s.Members) == 2 })
	closeSession(t, a.s)
	c.until(t, "its turn", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == 1 })
}

func TestDamagedRecordsAreNamed(t *testing.T) {
	admin := open(t, zk.Options{})
	p := root(t, admin)
	a := join(t, p, "a")
	a.until(t, "its turn", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == 1 })
	for _, path := range []string{p.Elected(), p.Current(), p.Policy(), p.Election() + "/junk", p.Election() + "/x-n_12"} {
		if _, err := admin.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte("\x00garbage")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{p.Leader(), p.Node("a")} {
		if _, err := admin.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte(`{"v":99}`)}); err != nil {
			t.Fatal(err)
		}
	}
	a.until(t, "the errors", func(s cluster.Snapshot) bool {
		return s.Elected.Err != nil && s.Fence.Err != nil && s.Current.Err != nil && s.Policy.Err != nil &&
			len(s.Members) == 1 && s.Members[0].Node.Err != nil
	})
	for path, err := range map[string]error{
		p.Elected(): a.last.Elected.Err, p.Leader(): a.last.Fence.Err, p.Current(): a.last.Current.Err,
		p.Policy(): a.last.Policy.Err, p.Node("a"): a.last.Members[0].Node.Err,
	} {
		contains(t, err, path)
	}
}

func TestOwnIncarnationDeleted(t *testing.T) {
	admin := open(t, zk.Options{})
	p := root(t, admin)
	a := join(t, p, "a")
	a.until(t, "its turn", func(s cluster.Snapshot) bool { return s.Elector })
	if _, err := admin.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: p.Incarnation(a.in.Name), Version: 0}); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the loss", func(s cluster.Snapshot) bool { return s.SelfLost })
}

func TestReadAllAgreesWithTheElector(t *testing.T) {
	admin := open(t, zk.Options{})
	p := root(t, admin)
	a := join(t, p, "a")
	join(t, p, "b")
	a.until(t, "both members", func(s cluster.Snapshot) bool { return s.Elector && len(s.Members) == 2 })
	all, err := ReadAll(t.Context(), admin, p, false)
	if err != nil || len(all.Members) != 2 || all.Members[0].ID != "a" || all.Members[1].Node.Record.ID != "b" {
		t.Errorf("%+v, %v", all.Members, err)
	}
	_, err = ReadAll(t.Context(), admin, cluster.Paths{Root: "/nothing/here"}, false)
	contains(t, err, "/nothing/here", "--root")
}

func TestTakenID(t *testing.T) {
	p := root(t, open(t, zk.Options{}))
	first, second := open(t, zk.Options{}), open(t, zk.Options{})
	node := cluster.Node{ID: "a", Instance: cluster.NewInstance(1), Host: "host1", PID: 4711}
	if _, err := Register(t.Context(), first, p, node); err != nil {
		t.Fatal(err)
	}
	_, err := Register(t.Context(), second, p, node)
	var taken *TakenError
	if !errors.As(err, &taken) || taken.Session != first.SessionID() {
		t.Fatalf("the second: %v", err)
	}
	contains(t, err, `"a"`, "host1", "4711", fmt.Sprintf("0x%x", first.SessionID()))
}

// After a lost reply, Register finds its registration and does not repeat it.
func TestLostRegistrationIsReadBack(t *testing.T) {
	px, err := faultproxy.New(shared.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(px.Close)
	s := open(t, zk.Options{Servers: []string{fmt.Sprint("127.0.0.1:", px.Port())}})
	p := root(t, s)
	px.SetMode(faultproxy.HalfOpen)
	lost := make(chan error, 1)
	go func() {
		_, err := Register(t.Context(), s, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)})
		lost <- err
	}()
	other := open(t, zk.Options{})
	eventually(t, "the registration", func() bool {
		_, _, err := other.Get(t.Context(), p.Node("a"), false)
		return err == nil
	})
	px.Reset(true)
	px.SetMode(faultproxy.Pass)
	if err := <-lost; !errors.Is(err, cluster.ErrUnknown) {
		t.Fatalf("the reply was lost: %v", err)
	}
	eventually(t, "the reconnect", s.Connected)
	var in cluster.Incarnation
	eventually(t, "the registration is read back", func() bool {
		var err error
		in, err = Register(t.Context(), s, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)})
		return err == nil
	})
	names, _, err := other.Children(t.Context(), p.Election(), false)
	if err != nil || len(names) != 1 || names[0] != in.Name {
		t.Errorf("incarnations %v, adopted %s, %v", names, in.Name, err)
	}
}
