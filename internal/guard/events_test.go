package guard

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/boottime"
)

// isNear reports whether a point in time is about ahead from now, allowing for delays of this process.
func isNear(at, ahead time.Duration) bool {
	left := at - boottime.Now()
	return left <= ahead && left > ahead-time.Second
}

// The guard carries out valid messages of the daemon. It refuses invalid ones without doing anything.
func TestGuardHandlesMessages(t *testing.T) {
	b := newBareGuard(t)
	accept := func(m message, daemon, keeper []string) {
		t.Helper()
		if err := b.handle(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		b.expect(string(m.Kind), daemon, keeper)
	}
	refuse := func(m message) {
		t.Helper()
		if err := b.handle(m); !errors.Is(err, errProtocol) {
			t.Errorf("%+v: %v", m, err)
		}
		b.expect(string(m.Kind), nil, nil)
	}
	at := boottime.Now() + time.Hour
	if err := b.handle(message{Kind: kindLease, At: at}); err != nil || b.lease != at {
		t.Errorf("the lease: %v, %s", err, b.lease)
	}
	for who, f := range map[string]*os.File{"keeper": b.keeperEnd, "daemon": b.daemonEnd} {
		if m, err := readFrame(f); err != nil || m.At != at || m.Kind != map[string]kind{"keeper": kindLease, "daemon": kindLeaseConfirmed}[who] {
			t.Errorf("the %s got %+v, %v", who, m, err)
		}
	}
	accept(message{Kind: kindHeartbeat, At: at + 1}, nil, nil)
	if b.heartbeatDeadline != at+1 {
		t.Errorf("heartbeat deadline %s", b.heartbeatDeadline)
	}
	accept(message{Kind: kindHeartbeat}, nil, nil)
	if b.heartbeatDeadline != 0 {
		t.Error("there is still a heartbeat deadline")
	}
	accept(message{Kind: kindAlive}, nil, nil)
	accept(message{Kind: kindNotify, Notify: "nobody listens"}, nil, nil)
	c := &Credentials{ID: 5}
	accept(message{Kind: kindSession, Session: c}, nil, nil)
	accept(message{Kind: kindPendingHooks, PendingHooks: []Spec{{Path: "hook"}}}, nil, nil)
	accept(message{Kind: kindConfig, Config: []byte("good")}, nil, nil)
	if b.session != c || len(b.pendingHooks) != 1 || string(b.lastConfig) != "good" {
		t.Errorf("%v, %v, %q", b.session, b.pendingHooks, b.lastConfig)
	}
	refuse(message{Kind: "sing"})
	refuse(message{Kind: kindStart, Seq: 7})
	refuse(message{Kind: kindStart, Seq: 7, Spec: &Spec{Path: "/bin/true"}})
	b.work = &work{seq: 7, spec: new(Spec)}
	refuse(message{Kind: kindStart, Seq: 8, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}})
	accept(message{Kind: kindKill, Seq: 8}, nil, nil)
	accept(message{Kind: kindStop, Seq: 8}, nil, nil)
	if b.work.killing {
		t.Error("a message for other work had an effect")
	}
	if accept(message{Kind: kindKill, Seq: 7}, nil, nil); !b.work.killing {
		t.Error("not killed")
	}
	b.work = nil
	accept(message{Kind: kindKill, Seq: 7}, nil, nil) // it has ended in the meantime
	accept(message{Kind: kindStart, Seq: 9, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, nil, []string{"start 9"})
	if w := b.work; w == nil || w.seq != 9 || b.keeper.killing {
		t.Errorf("%+v", w)
	}
	b.work, b.lease = nil, boottime.Now()
	accept(message{Kind: kindStart, Seq: 10, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 10 there is no lease"}, nil)
	b.lease = 0
	accept(message{Kind: kindStart, Seq: 11, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 11 there is no lease"}, nil)
	b.lease, b.keeper = at, nil
	accept(message{Kind: kindStart, Seq: 12, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 12 " + errNoKeeper.Error()}, nil)
	if b.work != nil {
		t.Error("there is work although none was started")
	}
}

// A daemon that closes its socket gets time to exit; one that violates the protocol is killed. Further messages of either are
// ignored.
func TestGuardAbandonsDaemon(t *testing.T) {
	lease := message{Kind: kindLease, At: 77}
	for name, c := range map[string]struct {
		former, abandoned bool
		in                incoming
		handled, hungUp   bool
		killing           bool
	}{
		"a message":            {in: incoming{msg: lease}, handled: true},
		"from a former daemon": {in: incoming{msg: lease}, former: true},
		"after it has hung up": {in: incoming{msg: lease}, abandoned: true},
		"end of file":          {in: incoming{err: io.EOF}, hungUp: true},
		"connection reset":     {in: incoming{err: syscall.ECONNRESET}, hungUp: true},
		"a broken pipe":        {in: incoming{err: syscall.EPIPE}, hungUp: true},
		"protocol error":       {in: incoming{err: errProtocol}, killing: true},
		"unknown kind":         {in: incoming{msg: message{Kind: "sing"}}, killing: true},
	} {
		b := newBareGuard(t)
		b.lease = 5
		if c.in.daemon = b.daemon; c.former {
			c.in.daemon = new(daemon)
		}
		b.daemon.abandoned = c.abandoned
		b.receiveFromDaemon(c.in)
		if handled := b.lease == 77; handled != c.handled {
			t.Errorf("%s: handled: %t", name, handled)
		}
		if d := b.daemon; d.abandoned != (c.abandoned || c.hungUp || c.killing) || d.killing != c.killing || c.in.daemon.socketClosed != (c.in.err != nil) {
			t.Errorf("%s: %+v", name, d)
		}
		if c.hungUp && !isNear(b.heartbeatDeadline, exitTimeout) || !c.hungUp && b.heartbeatDeadline != 0 {
			t.Errorf("%s: heartbeat deadline %s", name, b.heartbeatDeadline)
		}
		if logged := strings.Contains(b.logText.String(), "killing the daemon"); logged != c.killing {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// Unread messages of a dead daemon about its session, hooks and configuration still count, unless it was abandoned before.
func TestMessagesOfDeadDaemon(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		b := newBareGuard(t)
		d := b.daemon
		d.abandoned, b.deadDaemon, b.daemon = abandoned, d, nil
		for _, m := range []message{{Kind: kindSession, Session: &Credentials{ID: 5}}, {Kind: kindPendingHooks, PendingHooks: []Spec{{}}}, {Kind: kindConfig, Config: []byte("c")}, {Kind: kindLease, At: 77}, {Kind: "sing"}} {
			b.receiveFromDaemon(incoming{daemon: d, msg: m})
		}
		if handled := !abandoned; (b.session != nil) != handled || (len(b.pendingHooks) == 1) != handled || (b.lastConfig != nil) != handled || b.lease == 77 || b.deadDaemon == nil {
			t.Errorf("abandoned: %t: %+v", abandoned, b.guard)
		}
		b.receiveFromDaemon(incoming{daemon: d, err: io.EOF})
		if _, err := d.socket.Write([]byte("x")); b.deadDaemon != nil || !d.socketClosed || !errors.Is(err, os.ErrClosed) {
			t.Errorf("after the end of file: %+v, %v", b.deadDaemon, err)
		}
	}
}

// The exit of the daemon leads to its restart or to the exit of the guard.
func TestDaemonExited(t *testing.T) {
	exit := func(status int) syscall.WaitStatus { return syscall.WaitStatus(status << 8) }
	for name, c := range map[string]struct {
		status               syscall.WaitStatus
		stopping, final      bool
		socketClosed         bool
		age, oldDelay, delay time.Duration
		noRespawn            bool
		exitStatus           int
		log                  string
	}{
		"success":                {status: exit(0), noRespawn: true},
		"status 1":               {status: exit(1), noRespawn: true, exitStatus: 1},
		"a panic":                {status: exit(2), exitStatus: 2, delay: minRespawnDelay, log: "killing its work"},
		"killed":                 {status: 9, exitStatus: 137, delay: minRespawnDelay, log: "killing its work"},
		"killed again":           {status: 9, exitStatus: 137, oldDelay: time.Second, delay: 2 * time.Second, log: "killing its work"},
		"killed again and again": {status: 9, exitStatus: 137, oldDelay: maxRespawnDelay, delay: maxRespawnDelay, log: "killing its work"},
		"after a long time":      {status: 9, exitStatus: 137, oldDelay: maxRespawnDelay, age: stableAfter + time.Second, delay: minRespawnDelay, log: "killing its work"},
		"after a while":          {status: 9, exitStatus: 137, oldDelay: time.Second, age: stableAfter - time.Second, delay: 2 * time.Second, log: "killing its work"},
		"stopping":               {status: 9, stopping: true, noRespawn: true, exitStatus: 137, log: "the daemon has died"},
		"no respawn":             {status: 9, final: true, noRespawn: true, exitStatus: 137, log: "the daemon has died"},
		"socket closed":          {status: 9, final: true, socketClosed: true, noRespawn: true, exitStatus: 137, log: "the daemon has died"},
	} {
		b := newBareGuard(t)
		d := b.daemon
		d.socketClosed, d.startedAt = c.socketClosed, boottime.Now()-c.age
		b.opt.Respawn, b.stopping, b.respawnDelay, b.lease, b.heartbeatDeadline = !c.final, c.stopping, c.oldDelay, 5, 6
		b.daemonExited(c.status)
		if b.daemon != nil || b.lease != 0 || b.heartbeatDeadline != 0 || b.exitStatus != c.exitStatus || b.noRespawn != c.noRespawn {
			t.Errorf("%s: %+v", name, b.guard)
		}
		if (b.deadDaemon == d) == c.socketClosed {
			t.Errorf("%s: its socket is still read: %t", name, b.deadDaemon == d)
		}
		if _, err := d.socket.Write([]byte("x")); errors.Is(err, os.ErrClosed) != c.socketClosed {
			t.Errorf("%s: write to its socket: %v", name, err)
		}
		if !c.noRespawn && (b.respawnDelay != c.delay || !isNear(b.respawnAt, c.delay)) || c.noRespawn && b.respawnAt != 0 {
			t.Errorf("%s: respawn delay %s, at %s", name, b.respawnDelay, b.respawnAt)
		}
		if n := strings.Count(b.logText.String(), "level=ERROR"); n != min(1, len(c.log)) || !strings.Contains(b.logText.String(), c.log) {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// Work may run until the end of the lease, and a pending hook until its own deadline.
func TestLeaseExpired(t *testing.T) {
	now := boottime.Now()
	ahead, behind := now+time.Hour, now
	for _, c := range []struct {
		lease   time.Duration
		work    *work
		expired bool
	}{
		{0, nil, false}, {behind, nil, false},
		{0, &work{}, true}, {behind, &work{}, true}, {ahead, &work{}, false},
		{0, &work{killing: true}, false},
		{0, &work{hookDeadline: ahead}, false}, {ahead, &work{hookDeadline: behind}, true},
	} {
		g := &guard{lease: c.lease, work: c.work}
		if g.leaseExpired() != c.expired {
			t.Errorf("%s, %+v: expired: %t", c.lease, c.work, !c.expired)
		}
	}
}

// The guard exits when nothing is left to do, to wait for, or to kill.
func TestGuardFinished(t *testing.T) {
	for name, change := range map[string]func(*guard){
		"":                       func(*guard) {},
		"a respawn":              func(g *guard) { g.noRespawn = false },
		"a daemon":               func(g *guard) { g.daemon = new(daemon) },
		"a dead daemon":          func(g *guard) { g.deadDaemon = new(daemon) },
		"work":                   func(g *guard) { g.work = new(work) },
		"a session":              func(g *guard) { g.session = new(Credentials) },
		"a session being closed": func(g *guard) { g.closingSession = true },
		"a pending hook":         func(g *guard) { g.pendingHooks = make([]Spec, 1) },
	} {
		g := &guard{noRespawn: true}
		change(g)
		if done := name == ""; g.onlyKeeperLeft() != done || g.finished() != done {
			t.Errorf("with %s: only keeper left: %t, finished: %t", name, g.onlyKeeperLeft(), g.finished())
		}
		if g.keeper = new(keeperProcess); g.finished() {
			t.Errorf("with a keeper and %s: finished", name)
		}
	}
}

// The guard handles the keeper's messages about the current work and passes them on. It ignores those of another keeper or about
// other work.
func TestGuardHandlesKeeperMessages(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bareGuard, *incoming)
		msg    message
		sent   []string
		check  func(*guard) bool
	}{
		"killing":                     {msg: message{Kind: kindKilling}, check: func(g *guard) bool { return g.keeper.killing }},
		"started":                     {msg: message{Kind: kindStarted, Pid: 99}, sent: []string{"started 7"}, check: func(g *guard) bool { return g.work.pid == 99 }},
		"start failed":                {msg: message{Kind: kindStarted, Error: "none"}, sent: []string{"started 7 none"}, check: func(g *guard) bool { return g.work == nil }},
		"exited":                      {msg: message{Kind: kindExited, Status: StatusSuccess}, sent: []string{"exited 7 " + StatusSuccess}, check: func(g *guard) bool { return g.work.status == StatusSuccess }},
		"dead":                        {msg: message{Kind: kindDead, Output: "words"}, sent: []string{"dead 7 words"}, check: func(g *guard) bool { return g.work == nil }},
		"unkillable":                  {msg: message{Kind: kindUnkillable, Error: "hurt"}, sent: []string{"unkillable 7 hurt"}, check: func(g *guard) bool { return g.work.unkillable == "hurt" }},
		"another kind":                {msg: message{Kind: kindLeaseConfirmed}, check: func(g *guard) bool { return g.work != nil }},
		"other work":                  {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.msg.Seq = 6 }, check: func(g *guard) bool { return g.work != nil }},
		"another keeper":              {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.keeper = new(keeperProcess) }, check: func(g *guard) bool { return g.work != nil }},
		"end of file":                 {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.err = io.EOF }, check: func(g *guard) bool { return g.work != nil }},
		"no work":                     {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work = nil }},
		"a unit":                      {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work.unit = new(unitKiller) }, check: func(g *guard) bool { return g.work != nil }},
		"a hook is dead":              {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.work == nil && !g.hookFailed }},
		"a hook succeeded":            {msg: message{Kind: kindExited, Status: StatusSuccess}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"a hook failed":               {msg: message{Kind: kindExited, Status: "exited with status 1"}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed }},
		"a hook started":              {msg: message{Kind: kindStarted, Pid: 99}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"a hook could not be started": {msg: message{Kind: kindStarted, Error: "none"}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed && g.work == nil }},
	} {
		b := newBareGuard(t)
		b.work = &work{seq: 7, spec: &Spec{Argv: []string{"hook"}}}
		m := incoming{keeper: b.keeper, msg: c.msg}
		m.msg.Seq = 7
		if c.change != nil {
			c.change(b, &m)
		}
		b.receiveFromKeeper(m)
		b.expect(name, c.sent, nil)
		if c.check != nil && !c.check(b.guard) {
			t.Errorf("%s: %+v, %+v", name, b.work, b.guard)
		}
		if failed := strings.Contains(b.logText.String(), "a pending hook has failed"); failed != b.hookFailed {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// A pid that does not exist in the keeper's namespace is translated to 0.
func TestHostPidOfMissingProcess(t *testing.T) {
	b := newBareGuard(t)
	if pid := b.hostPid(77); pid != 77 {
		t.Errorf("%d in the same namespace", pid)
	}
	b.opt.Containment = PidnsContainment
	if pid := b.hostPid(noPid); pid != 0 {
		t.Errorf("%d in another", pid)
	}
}

// The daemon gets every report of an unkillable process, and of the end of that state. The log contains each reason once.
func TestUnkillableReports(t *testing.T) {
	b := newBareGuard(t)
	w := &work{seq: 7}
	for _, text := range []string{"hurt", "hurt", "", "hurt more"} {
		b.reportUnkillable(w, text)
	}
	b.expect("alarms", []string{"unkillable 7 hurt", "unkillable 7 hurt", "unkillable 7", "unkillable 7 hurt more"}, nil)
	if n := strings.Count(b.logText.String(), "cannot kill the work"); n != 2 || !strings.Contains(b.logText.String(), `reason="hurt more"`) {
		t.Errorf("log: %s", b.logText)
	}
}

// When the keeper dies, the child and the daemon are killed, but a unit is not. When the guard is about to exit, nothing happens.
func TestKeeperExited(t *testing.T) {
	for name, c := range map[string]struct {
		work      *work
		noRespawn bool
		killing   bool
	}{
		"a child": {work: &work{}, killing: true}, "a unit": {work: &work{unit: new(unitKiller)}}, "no work": {}, "about to exit": {noRespawn: true},
	} {
		b := newBareGuard(t)
		k, d := b.keeper, b.daemon
		if b.work = c.work; c.noRespawn {
			b.noRespawn, b.daemon = true, nil
		}
		b.keeperExited(syscall.WaitStatus(9))
		if _, err := k.socket.Write([]byte("x")); b.keeper != nil || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %+v, %v", name, b.keeper, err)
		}
		if c.work != nil && (c.work.killing != c.killing || c.work.keeperDead != c.killing) {
			t.Errorf("%s: %+v", name, c.work)
		}
		if d.killing == c.noRespawn || d.abandoned == c.noRespawn || strings.Contains(b.logText.String(), "the keeper has died") == c.noRespawn {
			t.Errorf("%s: %+v; log: %s", name, d, b.logText)
		}
	}
}

// Signals are passed on to the daemon. Without a daemon, those that mean stop end the guard.
func TestSignalHandling(t *testing.T) {
	caught := make(chan os.Signal, 1) // children must not inherit ignored signals, as from nohup(1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(caught)
	b := newBareGuard(t)
	if b.handleSignal(syscall.SIGCHLD); b.stopping || !alive(b.daemon.pid) {
		t.Error("SIGCHLD was treated as a request to stop")
	}
	for sig, ends := range map[syscall.Signal]bool{syscall.SIGTERM: true, syscall.SIGHUP: false} {
		b := newBareGuard(t)
		b.handleSignal(sig)
		if pid := b.daemon.pid; b.stopping != ends || b.noRespawn || b.exitStatus != 0 {
			t.Errorf("%s: %+v", sig, b.guard)
		} else {
			eventually(t, "the death of the daemon", func() bool { return !alive(pid) })
		}
		b = newBareGuard(t)
		b.daemon = nil
		if b.handleSignal(sig); b.stopping != ends || b.noRespawn != ends || ends && b.exitStatus != 128+int(sig) {
			t.Errorf("%s, no daemon: %+v", sig, b.guard)
		}
	}
}
