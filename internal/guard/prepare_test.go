package guard

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Nothing of prepared work runs before Start, and Start needs a lease (S1).
func TestPreparedWorkRunsOnlyWithALease(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		fx := startGuard(t, "CONTAINMENT="+string(by))
		d := fx.nextDaemon()
		call[int](d, "SetSession", fx.credentials())
		work := fx.shell("echo $$ >$D/main; exec sleep 1000")
		ran := func(when string) {
			t.Helper()
			if pids := pidsWithEnv([]string{workEnv(fx.dir)}); len(pids) > 0 || read(filepath.Join(fx.dir, "main")) != "" {
				t.Errorf("%s, %s: processes %v of the work run", by, when, pids)
			}
		}
		call[int](d, "Prepare", work)
		ran("prepared")
		if text := read(workStateFile(fx.credentials().File, call[int](d, "ID", 0))); text != stateDead {
			t.Errorf("%s: the state file says %q", by, text)
		}
		if _, err := tryCall[int](d, "Start", work); err == nil || !strings.Contains(err.Error(), errNoLease.Error()) {
			t.Errorf("%s: started without a lease: %v", by, err)
		}
		ran("without a lease")
		call[time.Duration](d, "SetLease", time.Hour)
		seq := call[int](d, "Prepare", work)
		ran("prepared with a lease")
		pid := call[int](d, "Start", work)
		if got := call[int](d, "Seq", 0); got != seq {
			t.Errorf("%s: Start has prepared the work again: %d, not %d", by, got, seq)
		}
		if !alive(pid) {
			t.Errorf("%s: the work does not run", by)
		}
		call[int](d, "Kill", 0)
		if e := call[ExitInfo](d, "Dead", 0); len(e.StillAlive) > 0 {
			t.Errorf("%s: %v", by, e)
		}
	}
}

// Prepared work may get another environment, which its files name before any of it runs.
func TestPreparedWorkGetsAnotherEnvironment(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		fx := startGuard(t, "CONTAINMENT="+string(by))
		d := fx.nextDaemon()
		call[int](d, "SetSession", fx.credentials())
		in := func(term string) WorkOptions {
			work := fx.shell("echo $ZKELECTD_TERM >$D/term; exec sleep 1000")
			work.Env = append(work.Env, "ZKELECTD_TERM="+term)
			return work
		}
		seq := call[int](d, "Prepare", in("8"))
		if got := call[int](d, "Prepare", in("9")); got != seq {
			t.Errorf("%s: prepared again", by)
		}
		if text := read(leadershipFile(fx.credentials().File, call[int](d, "ID", 0))); !strings.Contains(text, "ZKELECTD_TERM=9") {
			t.Errorf("%s: the file says %s", by, text)
		}
		call[time.Duration](d, "SetLease", time.Hour)
		call[int](d, "Start", in("10"))
		if got := call[int](d, "Seq", 0); got != seq {
			t.Errorf("%s: Start has prepared it again", by)
		}
		eventually(t, "the start", func() bool { return read(filepath.Join(fx.dir, "term")) == "10\n" })
		call[int](d, "Kill", 0)
		call[ExitInfo](d, "Dead", 0)
	}
}

// The heir may be elected just when it prepares: the new environment follows, and the start waits for that.
func TestTheEnvironmentChangesWhileWorkIsPrepared(t *testing.T) {
	t.Parallel()
	for range 20 {
		c := newClient(t)
		c.l.Prepare(WorkOptions{Command: []string{"/bin/true"}, Env: []string{"ZKELECTD_TERM=8"}})
		c.l.Prepare(WorkOptions{Command: []string{"/bin/true"}, Env: []string{"ZKELECTD_TERM=9"}})
		done := c.l.prepared.done
		seq := c.expect(kindPrepare).Seq
		select {
		case <-done:
			t.Fatal("prepared without the answer of the guard")
		default:
		}
		c.send(message{Kind: kindPrepared, Seq: seq})
		if m := c.expect(kindEnv); m.Seq != seq || !slices.Equal(m.Env, []string{"ZKELECTD_TERM=9"}) {
			t.Errorf("%+v", m)
		}
		<-done
	}
}

// An heir prepares nothing that would keep a process of its own.
func TestWhatAnHeirPrepares(t *testing.T) {
	for by, want := range map[Containment]bool{CgroupContainment: true, PidnsContainment: false, KeeperContainment: false} {
		c := newClient(t)
		c.send(message{Kind: kindHello, Containment: &ContainmentRecord{Mode: by}})
		eventually(t, "the hello", func() bool { return c.Containment() != "" })
		if c.l.PrepareHeir(WorkOptions{Command: []string{"/bin/true"}}); !want {
			if c.l.prepared != nil {
				t.Errorf("%s: prepared", by)
			}
			continue
		}
		seq := c.expect(kindPrepare).Seq
		c.send(message{Kind: kindPrepared, Seq: seq, Error: errStillRuns.Error()})
		<-c.l.prepared.done
	}
}

// What was prepared and not started is discarded, also if other work starts. Nothing of it is left.
func TestPreparedWorkIsDiscarded(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	fx := startGuard(t)
	d := fx.nextDaemon()
	call[time.Duration](d, "SetLease", time.Hour)
	first, second := fx.shell("echo first >>$D/ran; exec sleep 1000"), fx.shell("echo second >>$D/ran; exec sleep 1000")
	groups := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() bool { return len(fx.cgroups()) == want })
	}
	call[int](d, "Discard", 0)
	call[int](d, "Prepare", first)
	groups("the control group", 1)
	call[int](d, "Discard", 0)
	call[int](d, "Discard", 0)
	groups("its removal", 0)
	call[int](d, "Prepare", first)
	call[int](d, "Start", second)
	groups("only that of the work", 1)
	eventually(t, "the start", func() bool { return read(filepath.Join(fx.dir, "ran")) == "second\n" })
	if _, err := tryCall[int](d, "Prepare", first); err == nil {
		t.Error("prepared while other work runs")
	}
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	call[int](d, "Prepare", first)
	call[int](d, "Discard", 0)
	groups("the removal of all", 0)
	if text := read(filepath.Join(fx.dir, "ran")); text != "second\n" {
		t.Errorf("%q ran", text)
	}
}

// Prepared work ends with its leadership, its daemon, and its guard, like every other.
func TestPreparedWorkEndsWithItsOwners(t *testing.T) {
	t.Parallel()
	requireCgroups(t)
	for name, end := range map[string]func(*fixture, *remoteDaemon){
		"leadership": func(_ *fixture, d *remoteDaemon) { call[int](d, "Abandon", 0); call[int](d, "Gone", 0) },
		"daemon":     func(fx *fixture, d *remoteDaemon) { d.callNoWait("Exit", 0); fx.guardExitStatus() },
	} {
		fx := startGuard(t)
		d := fx.nextDaemon()
		call[time.Duration](d, "SetLease", time.Hour)
		call[int](d, "Prepare", fx.shell("touch $D/ran"))
		end(fx, d)
		eventually(t, name+": the removal of the control group", func() bool { return len(fx.cgroups()) == 0 })
		if _, err := os.Stat(filepath.Join(fx.dir, "ran")); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	fx := startGuard(t, "RESPAWN=no")
	d := fx.nextDaemon()
	call[time.Duration](d, "SetLease", time.Hour)
	call[int](d, "Prepare", fx.shell("touch $D/ran"))
	fx.signalGuard(9)
	call[string](d, "Lost", 0)
	call[int](d, "Discard", 0)
	if _, err := tryCall[int](d, "Start", fx.shell("touch $D/ran")); err == nil {
		t.Errorf("started without a guard: %v", err)
	}
}

// If the keeper dies after the preparation, a new one starts the work, whether or not what was prepared is discarded before.
func TestKeeperDiesAfterPreparation(t *testing.T) {
	t.Parallel()
	for _, by := range allContainments {
		for _, discard := range []bool{false, true} {
			fx := startGuard(t, "CONTAINMENT="+string(by))
			d := fx.nextDaemon()
			call[time.Duration](d, "SetLease", time.Hour)
			work := fx.shell("exec sleep 1000")
			call[int](d, "Prepare", work)
			keeper := fx.keeperPid()
			fx.killAtOnce(keeper)
			eventually(t, "the refusal", func() bool { return call[bool](d, "PreparedIsDead", 0) })
			if discard {
				call[int](d, "DiscardSoon", 0)
			}
			if pid, err := tryCall[int](d, "Start", work); err != nil || !alive(pid) {
				t.Errorf("%s, discarded: %t: %v", by, discard, err)
				continue
			}
			call[int](d, "Kill", 0)
			call[ExitInfo](d, "Dead", 0)
		}
	}
}

// A guard that is stopped is lost if Start waits for the end of what was discarded.
func TestGuardStoppedAfterPreparation(t *testing.T) {
	t.Parallel()
	fx := startGuard(t)
	d := fx.nextDaemon()
	call[time.Duration](d, "SetLease", time.Hour)
	work := fx.shell("touch $D/ran")
	call[int](d, "Prepare", work)
	fx.signalGuard(syscall.SIGSTOP)
	call[int](d, "DiscardSoon", 0)
	if _, err := tryCall[int](d, "Start", work); err == nil || !strings.Contains(err.Error(), ErrLost.Error()) {
		t.Errorf("start: %v", err)
	}
	if read(filepath.Join(fx.dir, "ran")) != "" {
		t.Error("it ran")
	}
	d.checkGuardLost("it does not discard work that was prepared")
}

// A program that was removed after the preparation leaves nothing prepared.
func TestProgramRemovedAfterPreparation(t *testing.T) {
	c := newClient(t)
	program := filepath.Join(t.TempDir(), "work")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	opt := WorkOptions{Command: []string{program}}
	c.l.Prepare(opt)
	seq := c.expect(kindPrepare).Seq
	c.send(message{Kind: kindPrepared, Seq: seq, Containment: &ContainmentRecord{Mode: KeeperContainment}})
	<-c.l.prepared.done
	os.Remove(program)
	if _, err := c.l.Start(opt); err == nil {
		t.Fatal("started")
	}
	if m := c.expect(kindKill); m.Seq != seq {
		t.Errorf("%+v", m)
	}
	c.send(message{Kind: kindDead, Seq: seq})
	<-c.l.last.gone
}

// If a leadership ends before the guard gets the message to prepare work, nobody waits for the answer: the guard is not lost.
func TestLeadershipEndsBeforePreparation(t *testing.T) {
	c := newClient(t)
	c.writing.Lock() // delays the message
	c.l.Prepare(WorkOptions{Command: []string{"/bin/true"}})
	c.mu.Lock()
	c.l.abandoned, c.l.closed = true, true
	c.mu.Unlock()
	c.send(message{Kind: kindGone, Leadership: c.l.id})
	<-c.l.Dead()
	c.writing.Unlock()
	seq := c.expect(kindPrepare).Seq
	c.send(message{Kind: kindPrepared, Seq: seq, Error: ErrAbandoned.Error()})
	p := c.l.prepared
	if <-p.done; !errors.Is(p.err, ErrAbandoned) || c.Err() != nil {
		t.Errorf("%v; the guard: %v", p.err, c.Err())
	}
}
