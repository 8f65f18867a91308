package guard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Confirm waits for the guard's answer to what was sent last, not for an earlier one.
func TestConfirm(t *testing.T) {
	c := newClient(t)
	confirm := func() <-chan error {
		done := make(chan error, 1)
		go func() { done <- c.l.Confirm(t.Context()) }()
		c.expect(kindLease)
		return done
	}
	c.l.SetLease(time.Second)
	c.expect(kindLease) // which is not answered yet
	c.l.SetRelease([]byte("1"))
	c.expect(kindRelease)
	done := confirm()
	c.send(message{Kind: kindLeaseConfirmed})
	select {
	case err := <-done:
		t.Errorf("the answer to an earlier message counts: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Error(err)
	}
	done = confirm()
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Errorf("again: %v", err)
	}

	limited, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.l.Confirm(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an answer: %v", err)
	}
	c.expect(kindLease)
	c.send(message{Kind: kindLeaseConfirmed})
	done = confirm()
	c.l.Abandon()
	c.expect(kindAbandon)
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; !errors.Is(err, ErrAbandoned) {
		t.Errorf("once it is abandoned: %v", err)
	}
	c.l = c.NewLeadership("h")
	c.expect(kindOpen)
	done = confirm()
	c.loseGuard(ErrLost)
	if err := <-done; !errors.Is(err, ErrLost) {
		t.Errorf("once the guard is lost: %v", err)
	}
}

// With a full disk the file still has the release of before, which the next start would send if guard and daemon are
// killed.
func TestConfirmNeedsTheFile(t *testing.T) {
	c := newClient(t)
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 5})
	c.expect(kindSession)
	own := leadershipFile(c.file, c.l.file)
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(own, 0o700); err != nil { // a file cannot replace it
		t.Fatal(err)
	}
	c.l.SetRelease([]byte("1"))
	c.expect(kindRelease)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.l.Confirm(over); err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("the file is not written: %v", err)
	}
	os.Remove(own)
	done := make(chan error, 1)
	go func() { done <- c.l.Confirm(t.Context()) }()
	c.expect(kindLease)
	c.send(message{Kind: kindLeaseConfirmed})
	if err := <-done; err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if f, err := ReadSessionFile(c.file); err != nil || len(f.Session.Releases) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

// If the file cannot be written before work starts, as with a full disk, the next start must not take it from the one of before that nothing
// has run: it would release leadership while the work runs (S1).
func TestWorkThatIsInNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	c := newClient(t)
	c.file = filepath.Join(dir, "session")
	c.sessionFile = c.file
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 5})
	c.expect(kindSession)
	c.l.SetRelease([]byte("1"))
	c.expect(kindRelease)
	if f, err := ReadSessionFile(c.file); err != nil || len(f.Session.Releases) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.l.Start(Spec{Argv: []string{"sleep"}})
		done <- err
	}()
	sent := c.expect(kindPrepare)
	c.send(message{Kind: kindPrepared, Seq: sent.Seq, Containment: &ContainmentRecord{Mode: KeeperContainment}})
	c.expect(kindStart)
	if f, err := ReadSessionFile(c.file); err == nil && len(f.Session.Releases) > 0 {
		t.Errorf("the next start would release leadership: %+v", f)
	}
	standby := c.NewStandby("g") // whose work is in no file either
	c.expect(kindOpen)
	go standby.Start(Spec{Argv: []string{"sleep"}})
	second := c.expect(kindPrepare)
	c.send(message{Kind: kindPrepared, Seq: second.Seq, Containment: &ContainmentRecord{Mode: KeeperContainment}})
	c.expect(kindStart)
	if text, err := os.ReadFile(leadershipFile(c.file, standby.file)); err != nil || len(text) > 0 {
		t.Errorf("nothing says that its work may run: %q, %v", text, err)
	}
	c.send(message{Kind: kindStarted, Seq: second.Seq, Error: "stopped"})
	if err := os.Remove(filepath.Join(dir, "full")); err != nil {
		t.Fatal(err)
	}
	c.send(message{Kind: kindStarted, Seq: sent.Seq, Pid: 1 << 30})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r, err := readLeadership(leadershipFile(c.file, c.l.file)); err != nil || r.Release == nil || r.Containment == nil {
		t.Errorf("there is room again: %+v, %v", r, err)
	}
	c.send(message{Kind: kindDead, Seq: sent.Seq})
}
