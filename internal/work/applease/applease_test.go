package applease

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// leader is the leader of a term, whose lease can be renewed.
type leader struct {
	Book
	end       atomic.Int64
	announced atomic.Int32
	refusal   error
	value     string
}

// lead opens the book of a new term for an hour.
func lead(t *testing.T) *leader {
	l := &leader{value: "v"}
	l.renew(7, time.Hour)
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id, one := range l.out {
			l.remove(id, one)
		}
	})
	return l
}

func (l *leader) renew(term int64, left time.Duration) {
	l.end.Store(int64(boottime.Now() + left))
	l.Open(Offer{Term: term, Value: l.value, End: func() time.Duration { return time.Duration(l.end.Load()) },
		Announce: func(context.Context) error {
			l.announced.Add(1)
			return l.refusal
		}})
}

func (l *leader) ask(t *testing.T, r Request) Answer {
	t.Helper()
	a, err := l.Ask(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// asks asks in another goroutine, once it waits.
func (l *leader) asks(t *testing.T, r Request) <-chan Answer {
	t.Helper()
	l.mu.Lock()
	l.signal()
	l.mu.Unlock()
	answered := make(chan Answer, 1)
	go func() {
		a, _ := l.Ask(t.Context(), r)
		answered <- a
	}()
	testhelper.Eventually(t, time.Minute, "it waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.changed != nil
	}, func() string { return "" })
	return answered
}

func TestLeasesAreHandedOutExtendedAndReturned(t *testing.T) {
	l := lead(t)
	first := l.ask(t, Request{})
	if first.ID == "" || first.Term != 7 || first.Value != "v" || first.End != time.Duration(l.end.Load()) || first.Stop || l.announced.Load() != 1 {
		t.Errorf("%+v, announced %d times", first, l.announced.Load())
	}
	if same := l.ask(t, Request{ID: first.ID}); same != first {
		t.Errorf("without a renewal: %+v, want %+v", same, first)
	}
	l.value = "v2"
	l.renew(7, time.Hour)
	if a := l.ask(t, Request{ID: first.ID}); a.ID != first.ID || a.Value != "v2" {
		t.Errorf("with another value: %+v", a)
	}
	extended := l.asks(t, Request{ID: first.ID, Wait: time.Hour})
	l.renew(7, 2*time.Hour)
	if a := <-extended; a.ID != first.ID || a.End != time.Duration(l.end.Load()) {
		t.Errorf("%+v", a)
	}
	if other := l.ask(t, Request{}); other.ID == first.ID || l.Out() != 2 || l.announced.Load() != 1 {
		t.Errorf("%+v, %d are out", other, l.Out())
	}
	waiting := l.asks(t, Request{ID: first.ID, Wait: time.Hour})
	if !l.Return(first.ID, Process{}) || l.Return(first.ID, Process{}) || l.Out() != 1 {
		t.Errorf("%d are out", l.Out())
	}
	if a := <-waiting; a != (Answer{}) || l.Out() != 1 {
		t.Errorf("a lease that was returned is replaced: %+v", a)
	}
}

// Nothing is handed out before everything that may release the term knows of it.
func TestNothingIsHandedOutUnannounced(t *testing.T) {
	l := lead(t)
	l.refusal = errors.New("too late")
	if _, err := l.Ask(t.Context(), Request{}); !errors.Is(err, l.refusal) || l.Out() != 0 {
		t.Errorf("%v, %d are out", err, l.Out())
	}
	l.refusal = nil
	l.ask(t, Request{})
	l.renew(8, time.Hour) // in a hurry, nobody has waited
	if a := l.ask(t, Request{}); a.Term != 8 || l.announced.Load() != 3 {
		t.Errorf("%+v, announced %d times", a, l.announced.Load())
	}
}

// Those who wait learn of the end at once; nothing is extended any more, and nobody gets a new lease.
func TestAllAreToldToStop(t *testing.T) {
	l := lead(t)
	a := l.ask(t, Request{})
	told := l.asks(t, Request{ID: a.ID, Wait: time.Hour})
	stopBy := boottime.Now() + time.Minute
	l.Close(stopBy)
	if a := <-told; !a.Stop || a.End != stopBy || a.Term != 7 {
		t.Errorf("%+v", a)
	}
	l.end.Store(int64(boottime.Now() + 2*time.Hour))
	if again := l.ask(t, Request{ID: a.ID, Wait: time.Hour}); !again.Stop || again.End != stopBy {
		t.Errorf("again: %+v", again)
	}
	if other := l.ask(t, Request{}); other != (Answer{}) {
		t.Errorf("another one: %+v", other)
	}
	if other := l.ask(t, Request{ID: "unknown", Wait: time.Hour}); other != (Answer{}) {
		t.Errorf("an unknown one: %+v", other)
	}
	l.Close(0)
	if a := l.ask(t, Request{ID: a.ID}); !a.Stop || a.Left(boottime.Now()) != 0 {
		t.Errorf("without time left: %+v", a)
	}
}

// Without a lease, a request waits for leadership; with one, not beyond its end.
func TestARequestWaits(t *testing.T) {
	l := &leader{}
	for range 2 { // by itself, and until there is something
		if a := l.ask(t, Request{Wait: time.Millisecond}); a != (Answer{}) {
			t.Errorf("%+v", a)
		}
	}
	elected := l.asks(t, Request{Wait: time.Hour})
	l.renew(7, 50*time.Millisecond)
	a := <-elected
	if a.Term != 7 {
		t.Errorf("%+v", a)
	}
	if a = l.ask(t, Request{ID: a.ID, Wait: time.Hour}); a != (Answer{}) {
		t.Errorf("after its end: %+v", a)
	}
}

// over waits until no lease is out.
func (l *leader) over(t *testing.T) <-chan error {
	t.Helper()
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { over <- l.AwaitOver(ctx) }()
	return over
}

// A term is over when every lease has been returned, its process is dead, or its end has passed; nothing else proves
// that.
func TestWhatEndsALease(t *testing.T) {
	process := func(t *testing.T) (*exec.Cmd, Process) {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd, Process{cmd.Process.Pid, func() (int, error) { return unix.PidfdOpen(cmd.Process.Pid, 0) }}
	}
	for name, c := range map[string]struct {
		bound bool
		end   func(l *leader, a Answer, cmd *exec.Cmd, p Process) (over bool)
	}{
		"it is returned": {end: func(l *leader, a Answer, _ *exec.Cmd, p Process) bool { return l.Return(a.ID, p) }},
		"another process returns it": {bound: true, end: func(l *leader, a Answer, _ *exec.Cmd, _ Process) bool {
			return l.Return(a.ID, Process{Pid: 1})
		}},
		"its process is dead": {bound: true, end: func(_ *leader, _ Answer, cmd *exec.Cmd, _ Process) bool {
			return cmd.Process.Kill() == nil
		}},
		"its process is stopped": {bound: true, end: func(_ *leader, _ Answer, cmd *exec.Cmd, _ Process) bool {
			return cmd.Process.Signal(unix.SIGSTOP) != nil
		}},
		"a process that it is not bound to is dead": {end: func(_ *leader, _ Answer, cmd *exec.Cmd, _ Process) bool {
			return cmd.Process.Kill() != nil
		}},
		"its end has passed": {end: func(l *leader, a Answer, _ *exec.Cmd, _ Process) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.out[a.ID].end = boottime.Now()
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := lead(t)
			cmd, p := process(t)
			a := l.ask(t, Request{Process: p, Bound: c.bound})
			l.Close(boottime.Now())
			over := l.over(t)
			if !c.end(l, a, cmd, p) {
				select {
				case err := <-over:
					t.Fatalf("it is over: %v", err)
				case <-time.After(100 * time.Millisecond):
				}
				return
			}
			if err := <-over; err != nil || l.Out() != 0 {
				t.Errorf("%v, %d are out", err, l.Out())
			}
		})
	}
}

// A process that inherits a lease, as by fork, cannot extend it: the death of the other one would not mean its end.
func TestAnotherProcessCannotUseABoundLease(t *testing.T) {
	l := lead(t)
	self := Process{unix.Getpid(), func() (int, error) { return unix.PidfdOpen(unix.Getpid(), 0) }}
	a := l.ask(t, Request{Process: self, Bound: true})
	if b := l.ask(t, Request{ID: a.ID, Process: Process{Pid: 1}, Bound: false}); b != (Answer{}) || l.Out() != 1 {
		t.Errorf("%+v, %d are out", b, l.Out())
	}
	unknown := l.ask(t, Request{Process: Process{1, func() (int, error) { return -1, unix.ESRCH }}, Bound: true})
	if again := l.ask(t, Request{ID: unknown.ID}); again.ID != unknown.ID {
		t.Error("a lease of a process that cannot be identified is bound to it")
	}
}

func TestTheNumberOfLeasesIsLimited(t *testing.T) {
	l := lead(t)
	var last Answer
	for range maxOut {
		last = l.ask(t, Request{})
	}
	if _, err := l.Ask(t.Context(), Request{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	l.Return(last.ID, Process{})
	l.ask(t, Request{})
}
