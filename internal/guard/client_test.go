package guard

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// clientFixture is a Client for which the test plays guard and keeper.
type clientFixture struct {
	*Client
	l          *Leadership
	t          *testing.T
	guard      *socket
	guardPlace place    // of l, as the guard sees it
	report     *os.File // the keeper's end of the pipe
	logText    *syncBuffer
	file       string // the path of the session file
}

// syncBuffer is a buffer for a log that can be read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *syncBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newClient(t *testing.T) *clientFixture {
	t.Helper()
	c := &clientFixture{t: t, logText: new(syncBuffer), file: filepath.Join(t.TempDir(), "session")}
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	pipe, word, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	c.guard, c.report = near, word
	fd, err := unix.FcntlInt(far.Fd(), unix.F_DUPFD_CLOEXEC, 300)
	if err != nil {
		t.Fatal(err)
	}
	board, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for n, f := range map[int]*os.File{1: pipe, boardFD - SocketFD: file} {
		if err := unix.Dup3(int(f.Fd()), fd+n, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	if c.Client, err = Connect(fd, slog.New(slog.NewTextHandler(c.logText, nil))); err != nil {
		t.Fatal(err)
	}
	c.sessionFile = c.file
	c.l = c.NewLeadership("g")
	c.guardPlace = board.place(c.expect(kindOpen).Place, c.l.id)
	t.Cleanup(func() {
		near.Close()
		for seq := range 3 {
			c.reportDead(seq) // ends awaitDeath
		}
		word.Close()
		eventually(t, "the reports", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.timer == nil || len(c.deadKeepers) == 3 // it was closed, or has read all
		})
		c.Close()
	})
	return c
}

// expect returns the client's next message, which must have the given kind.
func (c *clientFixture) expect(want kind) message {
	c.t.Helper()
	m := c.receiveAny()
	if m.Kind != want {
		c.t.Fatalf("got %+v, want %s", m, want)
	}
	return m
}

func (c *clientFixture) receiveAny() message {
	c.t.Helper()
	c.guard.SetReadDeadline(time.Now().Add(testTimeout))
	m, err := readFrame(c.guard)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// reportDead reports that all works of a keeper are dead.
func (c *clientFixture) reportDead(keeper int) {
	c.report.Write(binary.BigEndian.AppendUint64(nil, uint64(keeper)))
}

// send sends a message to the client.
func (c *clientFixture) send(m message) {
	c.t.Helper()
	if err := writeFrame(c.guard, m); err != nil {
		c.t.Fatal(err)
	}
}

// start starts work, for which the guard replies with m. The keeper has the number 1.
func (c *clientFixture) start(opt Spec, m message) (w *Work, sent message, err error) {
	c.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w, err = c.l.Start(opt)
	}()
	sent = c.expect(kindPrepare)
	if m.Containment == nil {
		m.Containment = &ContainmentRecord{Mode: KeeperContainment}
	}
	m.Containment.KeeperSeq = 1
	c.send(message{Kind: kindPrepared, Seq: sent.Seq, Containment: m.Containment})
	if got := c.expect(kindStart); got.Seq != sent.Seq {
		c.t.Errorf("%+v", got)
	}
	c.send(message{Kind: kindStarted, Seq: sent.Seq, Pid: m.Pid, Error: m.Error})
	<-done
	return w, sent, err
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Each method sends its message to the guard and updates the session file.
func TestClientMessages(t *testing.T) {
	c := newClient(t)
	c.l.SetLease(time.Hour)
	if c.expect(kindLease); c.guardPlace.deadline() != time.Hour {
		t.Errorf("the lease ends at %s", c.guardPlace.deadline())
	}
	c.ReportAlive()
	c.expect(kindAlive)
	c.Notify("READY=1")
	if m := c.expect(kindNotify); m.Notify != "READY=1" {
		t.Errorf("%+v", m)
	}
	c.SetLastConfig([]byte("good"))
	if m := c.expect(kindConfig); string(m.Config) != "good" {
		t.Errorf("%+v", m)
	}
	hook := Spec{Path: "/bin/true", Argv: []string{"true"}}
	if err := c.l.SetPendingHooks(hook); err != nil {
		t.Error(err)
	}
	if m := c.expect(kindPendingHooks); m.Leadership != c.l.id || !reflect.DeepEqual(m.PendingHooks, []Spec{hook}) {
		t.Errorf("%+v", m)
	}
	own := Credentials{Servers: []string{"a:1"}, ID: 5}
	c.SetSession(own)
	if m := c.expect(kindSession); m.Session == nil || m.Session.ID != 5 {
		t.Errorf("%+v", m)
	}
	f, err := ReadSessionFile(c.file)
	if err != nil || f.Session.ID != 5 || f.Boot != currentBootID() || f.Namespace != pidNamespace() || len(f.PendingHooks()) != 1 || len(f.Leaderships) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if r := f.Leaderships[0]; r.Name != "g" || r.Containment != nil || r.Work != nil || r.Unit != nil || r.Release != nil {
		t.Errorf("%+v", r)
	}
	c.l.SetRelease([]byte("[1]"))
	if m := c.expect(kindRelease); m.Leadership != c.l.id || string(m.Release) != "[1]" {
		t.Errorf("%+v", m)
	}
	if f, err = ReadSessionFile(c.file); err != nil || len(f.Session.Releases) != 1 || string(f.Session.Releases[0]) != "[1]" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := f.RunPendingHooks(c.file, runNothing); err != nil {
		t.Error(err)
	}
	if f, err = ReadSessionFile(c.file); err != nil || len(f.PendingHooks()) != 0 || len(f.Session.Releases) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if p := f.Processes; len(p) != 2 || p[0].Role != "guard" || p[1].Role != "daemon" || p[0].Pid != c.GuardPid() || p[1].Pid != os.Getpid() || p[1].Started == 0 {
		t.Errorf("%+v", p)
	}
	if text := c.logText.String(); text != "" {
		t.Errorf("log: %s", text)
	}
	own1 := leadershipFile(c.file, c.l.file)
	os.Remove(own1)
	os.Mkdir(own1, 0o700) // a file cannot replace it
	if err := c.l.SetPendingHooks(); err == nil || !strings.Contains(c.logText.String(), "will not find this session") {
		t.Errorf("%v; log: %s", err, c.logText)
	}
	c.expect(kindPendingHooks)
	os.Remove(own1)
	c.l.SetPendingHooks()
	c.expect(kindPendingHooks)
	c.ClearSession()
	if m := c.expect(kindSession); m.Session != nil {
		t.Errorf("%+v", m)
	}
	for _, path := range []string{c.file, own1} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	c.ClearSession() // none
	c.expect(kindSession)
	c.sessionFile = filepath.Join(c.file, "none", "session")
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 6})
	if c.expect(kindSession); !strings.Contains(c.logText.String(), "will not find this session") {
		t.Errorf("log: %s", c.logText)
	}
}

// The client sends nothing for an abandoned leadership, and tells the guard once.
func TestClientRefusesAbandonedLeadership(t *testing.T) {
	c := newClient(t)
	other := c.NewLeadership("h")
	c.expect(kindOpen)
	c.l.SetLease(time.Second)
	c.expect(kindLease)
	for range 2 {
		c.l.Abandon()
	}
	if m := c.expect(kindAbandon); m.Leadership != c.l.id {
		t.Errorf("%+v", m)
	}
	c.l.SetLease(time.Minute)
	c.l.SetRelease([]byte("1"))
	if err := c.l.SetPendingHooks(Spec{}); !errors.Is(err, ErrAbandoned) {
		t.Error(err)
	}
	if _, err := c.l.Start(Spec{Argv: []string{"sleep"}}); !errors.Is(err, ErrAbandoned) {
		t.Error(err)
	}
	other.SetLease(time.Hour)
	if c.expect(kindLease); c.guardPlace.deadline() != time.Second {
		t.Errorf("the lease of an abandoned leadership ends at %s", c.guardPlace.deadline())
	}
	if isClosed(c.l.Dead()) {
		t.Error("dead without the guard's report")
	}
	c.send(message{Kind: kindGone, Leadership: c.l.id})
	<-c.l.Dead()
	c.l.Close()
	if m := c.expect(kindClose); m.Leadership != c.l.id {
		t.Errorf("%+v", m)
	}
}

// late reports whether the guard is late.
func (c *clientFixture) late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.l.overdue != 0
}

// A leadership has one work at a time, and what the guard says of earlier work changes nothing.
func TestOneWorkAtATime(t *testing.T) {
	cl := newClient(t)
	w, sent, err := cl.start(Spec{Argv: []string{"sleep"}}, message{Pid: noPid})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.l.Start(Spec{Argv: []string{"sleep"}}); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("a second start: %v", err)
	}
	for _, kind := range []kind{kindExited, kindDead, kindUnkillable, kindStarted} {
		cl.send(message{Kind: kind, Seq: sent.Seq - 1, Error: "other"})
	}
	cl.send(message{Kind: kindUnkillable, Seq: sent.Seq, Error: "hurt"})
	eventually(t, "the report", func() bool { return cl.l.Unkillable() == "hurt" })
	if isClosed(w.Exited()) || isClosed(w.Dead()) {
		t.Error("it has ended with other work")
	}
	cl.send(message{Kind: kindUnkillable, Seq: sent.Seq})
	eventually(t, "the end of that state", func() bool { return cl.l.Unkillable() == "" })
}

// A guard that was late, and has read the lease since, is not lost. See TestKilledBy, and TestStoppedGuard for one that is.
func TestGuardThatWasLateIsNotLost(t *testing.T) {
	cl := newClient(t)
	if _, _, err := cl.start(Spec{Argv: []string{"sleep"}}, message{Pid: noPid}); err != nil {
		t.Fatal(err)
	}
	now := boottime.Now()
	cl.guardPlace.enforce(now - 2*guardLate)
	cl.l.SetLease(now + time.Hour)
	eventually(t, "the delay", cl.late)
	cl.guardPlace.enforce(now + time.Hour)
	eventually(t, "some time", func() bool { return boottime.Now() > now+guardOverdue+100*time.Millisecond })
	if cl.Err() != nil || cl.late() {
		t.Errorf("%v, overdue: %t", cl.Err(), cl.late())
	}
}

// The work of a lost guard counts as dead once the keeper has reported that, and not before.
func TestKeeperReportProvesDeath(t *testing.T) {
	for keeper, dead := range map[int]bool{1: true, 2: false} {
		cl := newClient(t)
		w, _, err := cl.start(Spec{Argv: []string{"sleep"}}, message{Pid: noPid, Containment: &ContainmentRecord{Mode: KeeperContainment, Keeper: deadKeeper(t)}})
		if err != nil {
			t.Fatal(err)
		}
		closeWrite(cl.guard)
		<-cl.Context().Done()
		eventually(t, "the warning", func() bool { return strings.Contains(cl.logText.String(), "the work may still run") })
		if isClosed(w.Dead()) || isClosed(w.Exited()) {
			t.Error("dead without a report")
		}
		cl.reportDead(keeper)
		if !dead {
			began := boottime.Now()
			eventually(t, "some time", func() bool { return boottime.Now() > began+3*maxSweepDelay })
			if isClosed(w.Dead()) {
				t.Error("the report of another keeper counts")
			}
			cl.reportDead(1)
		}
		<-w.Dead()
		<-w.Exited()
		if w.Status() != "was killed with the guard" || strings.Count(cl.logText.String(), "the work may still run") != 1 {
			t.Errorf("%s; log: %s", w.Status(), cl.logText)
		}
	}
}

// What is set after Close reaches nobody, and does no harm.
func TestClosedClient(t *testing.T) {
	c := newClient(t)
	if _, _, err := c.start(Spec{Argv: []string{"sleep"}}, message{Pid: noPid}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.l.SetLease(boottime.Now() + time.Hour)
	c.Close()
}

// A unit that this process could not kill without its guard is not started: nothing else could.
func TestUncontainedUnitIsNotStarted(t *testing.T) {
	c := newClient(t)
	started := make(chan error, 1)
	go func() {
		_, err := c.l.Start(Spec{Unit: &Unit{Name: "x.service", Group: "/"}})
		started <- err
	}()
	sent := c.expect(kindPrepare)
	c.send(message{Kind: kindPrepared, Seq: sent.Seq})
	if m := c.expect(kindKill); m.Seq != sent.Seq {
		t.Errorf("%+v", m)
	}
	c.send(message{Kind: kindDead, Seq: sent.Seq})
	if err := <-started; err == nil || !strings.Contains(err.Error(), "is not the control group of a unit") {
		t.Errorf("%v", err)
	}
}
