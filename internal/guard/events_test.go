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

// near reports whether a time is as far from now as it should be, give or take what this process had to wait.
func isNear(at, ahead time.Duration) bool {
	left := at - boottime.Now()
	return left <= ahead && left > ahead-time.Second
}

// What the daemon says is done; what makes no sense is refused, and then nothing of it is done.
func TestWhatTheGuardObeys(t *testing.T) {
	b := newBareGuard(t)
	obeys := func(m message, daemon, keeper []string) {
		t.Helper()
		if err := b.handle(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		b.expect(string(m.Kind), daemon, keeper)
	}
	refuses := func(m message) {
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
			t.Errorf("the %s is told %+v, %v", who, m, err)
		}
	}
	obeys(message{Kind: kindHeartbeat, At: at + 1}, nil, nil)
	if b.heartbeatDeadline != at+1 {
		t.Errorf("it may be silent until %s", b.heartbeatDeadline)
	}
	obeys(message{Kind: kindHeartbeat}, nil, nil)
	if b.heartbeatDeadline != 0 {
		t.Error("it need not beat")
	}
	obeys(message{Kind: kindAlive}, nil, nil)
	obeys(message{Kind: kindNotify, Notify: "nobody listens"}, nil, nil)
	c := &Credentials{ID: 5}
	obeys(message{Kind: kindSession, Session: c}, nil, nil)
	obeys(message{Kind: kindPendingHooks, PendingHooks: []Spec{{Path: "undo"}}}, nil, nil)
	obeys(message{Kind: kindConfig, Config: []byte("good")}, nil, nil)
	if b.session != c || len(b.pendingHooks) != 1 || string(b.lastConfig) != "good" {
		t.Errorf("%v, %v, %q", b.session, b.pendingHooks, b.lastConfig)
	}
	refuses(message{Kind: "sing"})
	refuses(message{Kind: kindStart, Seq: 7})
	refuses(message{Kind: kindStart, Seq: 7, Spec: &Spec{Path: "/bin/true"}})
	b.work = &work{seq: 7, spec: new(Spec)}
	refuses(message{Kind: kindStart, Seq: 8, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}})
	obeys(message{Kind: kindKill, Seq: 8}, nil, nil)
	obeys(message{Kind: kindStop, Seq: 8}, nil, nil)
	if b.work.killing {
		t.Error("what is for other work counts")
	}
	if obeys(message{Kind: kindKill, Seq: 7}, nil, nil); !b.work.killing {
		t.Error("not killed")
	}
	b.work = nil
	obeys(message{Kind: kindKill, Seq: 7}, nil, nil) // it has ended meanwhile
	obeys(message{Kind: kindStart, Seq: 9, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, nil, []string{"start 9"})
	if w := b.work; w == nil || w.seq != 9 || b.keeper.killing {
		t.Errorf("%+v", w)
	}
	b.work, b.lease = nil, boottime.Now()
	obeys(message{Kind: kindStart, Seq: 10, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 10 there is no lease"}, nil)
	b.lease = 0
	obeys(message{Kind: kindStart, Seq: 11, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 11 there is no lease"}, nil)
	b.lease, b.keeper = at, nil
	obeys(message{Kind: kindStart, Seq: 12, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 12 " + errNoKeeper.Error()}, nil)
	if b.work != nil {
		t.Error("work that was not started is left")
	}
}

// A daemon that hangs up is given time to end; one that speaks nonsense is to be killed; neither is heard any more.
func TestWhomTheGuardHears(t *testing.T) {
	lease := message{Kind: kindLease, At: 77}
	for name, c := range map[string]struct {
		stranger, gone bool
		letter         incoming
		heard, hungUp  bool
		doomed         bool
	}{
		"a message":               {letter: incoming{msg: lease}, heard: true},
		"of a former daemon":      {letter: incoming{msg: lease}, stranger: true},
		"of one that has hung up": {letter: incoming{msg: lease}, gone: true},
		"its end":                 {letter: incoming{err: io.EOF}, hungUp: true},
		"its early end":           {letter: incoming{err: syscall.ECONNRESET}, hungUp: true},
		"a broken pipe":           {letter: incoming{err: syscall.EPIPE}, hungUp: true},
		"nonsense":                {letter: incoming{err: errProtocol}, doomed: true},
		"an order of no sense":    {letter: incoming{msg: message{Kind: "sing"}}, doomed: true},
	} {
		b := newBareGuard(t)
		b.lease = 5
		if c.letter.daemon = b.daemon; c.stranger {
			c.letter.daemon = new(daemon)
		}
		b.daemon.abandoned = c.gone
		b.receiveFromDaemon(c.letter)
		if heard := b.lease == 77; heard != c.heard {
			t.Errorf("%s: heard: %t", name, heard)
		}
		if d := b.daemon; d.abandoned != (c.gone || c.hungUp || c.doomed) || d.killing != c.doomed || c.letter.daemon.socketClosed != (c.letter.err != nil) {
			t.Errorf("%s: %+v", name, d)
		}
		if c.hungUp && !isNear(b.heartbeatDeadline, exitTimeout) || !c.hungUp && b.heartbeatDeadline != 0 {
			t.Errorf("%s: it may be silent until %s", name, b.heartbeatDeadline)
		}
		if logged := strings.Contains(b.logText.String(), "killing the daemon"); logged != c.doomed {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// What a dead daemon had said of what is left to do counts until nothing more comes, unless it had hung up before.
func TestLastWords(t *testing.T) {
	for _, gone := range []bool{false, true} {
		b := newBareGuard(t)
		late := b.daemon
		late.abandoned, b.deadDaemon, b.daemon = gone, late, nil
		for _, m := range []message{{Kind: kindSession, Session: &Credentials{ID: 5}}, {Kind: kindPendingHooks, PendingHooks: []Spec{{}}}, {Kind: kindConfig, Config: []byte("c")}, {Kind: kindLease, At: 77}, {Kind: "sing"}} {
			b.receiveFromDaemon(incoming{daemon: late, msg: m})
		}
		if heard := !gone; (b.session != nil) != heard || (len(b.pendingHooks) == 1) != heard || (b.lastConfig != nil) != heard || b.lease == 77 || b.deadDaemon == nil {
			t.Errorf("gone: %t: %+v", gone, b.guard)
		}
		b.receiveFromDaemon(incoming{daemon: late, err: io.EOF})
		if _, err := late.socket.Write([]byte("x")); b.deadDaemon != nil || !late.socketClosed || !errors.Is(err, os.ErrClosed) {
			t.Errorf("at its end: %+v, %v", b.deadDaemon, err)
		}
	}
}

// What follows the end of a daemon.
func TestWhatFollowsADaemonsEnd(t *testing.T) {
	exit := func(status int) syscall.WaitStatus { return syscall.WaitStatus(status << 8) }
	for name, c := range map[string]struct {
		status          syscall.WaitStatus
		stopping, once  bool
		read            bool // its socket has ended
		age, had, pause time.Duration
		over            bool
		want            int
		log             string
	}{
		"well":               {status: exit(0), over: true},
		"a verdict":          {status: exit(1), over: true, want: 1},
		"a panic":            {status: exit(2), want: 2, pause: minRespawnDelay, log: "killing its work"},
		"killed":             {status: 9, want: 137, pause: minRespawnDelay, log: "killing its work"},
		"again":              {status: 9, want: 137, had: time.Second, pause: 2 * time.Second, log: "killing its work"},
		"again and again":    {status: 9, want: 137, had: maxRespawnDelay, pause: maxRespawnDelay, log: "killing its work"},
		"after a long time":  {status: 9, want: 137, had: maxRespawnDelay, age: stableAfter + time.Second, pause: minRespawnDelay, log: "killing its work"},
		"after a while":      {status: 9, want: 137, had: time.Second, age: stableAfter - time.Second, pause: 2 * time.Second, log: "killing its work"},
		"told to stop":       {status: 9, stopping: true, over: true, want: 137, log: "the daemon has died"},
		"never again":        {status: 9, once: true, over: true, want: 137, log: "the daemon has died"},
		"all of it was read": {status: 9, once: true, read: true, over: true, want: 137, log: "the daemon has died"},
	} {
		b := newBareGuard(t)
		d := b.daemon
		d.socketClosed, d.startedAt = c.read, boottime.Now()-c.age
		b.opt.Respawn, b.stopping, b.respawnDelay, b.lease, b.heartbeatDeadline = !c.once, c.stopping, c.had, 5, 6
		b.daemonExited(c.status)
		if b.daemon != nil || b.lease != 0 || b.heartbeatDeadline != 0 || b.exitStatus != c.want || b.noRespawn != c.over {
			t.Errorf("%s: %+v", name, b.guard)
		}
		if (b.deadDaemon == d) == c.read {
			t.Errorf("%s: more is expected of it: %t", name, b.deadDaemon == d)
		}
		if _, err := d.socket.Write([]byte("x")); errors.Is(err, os.ErrClosed) != c.read {
			t.Errorf("%s: its socket: %v", name, err)
		}
		if !c.over && (b.respawnDelay != c.pause || !isNear(b.respawnAt, c.pause)) || c.over && b.respawnAt != 0 {
			t.Errorf("%s: again after %s, at %s", name, b.respawnDelay, b.respawnAt)
		}
		if n := strings.Count(b.logText.String(), "level=ERROR"); n != min(1, len(c.log)) || !strings.Contains(b.logText.String(), c.log) {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// Until when work may go on.
func TestTheWorksDeadline(t *testing.T) {
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

// The guard has ended when nothing is left to do, to wait for, or to end.
func TestWhenTheGuardHasEnded(t *testing.T) {
	for name, change := range map[string]func(*guard){
		"":           func(*guard) {},
		"not over":   func(g *guard) { g.noRespawn = false },
		"a daemon":   func(g *guard) { g.daemon = new(daemon) },
		"a late one": func(g *guard) { g.deadDaemon = new(daemon) },
		"work":       func(g *guard) { g.work = new(work) },
		"a session":  func(g *guard) { g.session = new(Credentials) },
		"a closing":  func(g *guard) { g.closingSession = true },
		"an undo":    func(g *guard) { g.pendingHooks = make([]Spec, 1) },
	} {
		g := &guard{noRespawn: true}
		change(g)
		if done := name == ""; g.onlyKeeperLeft() != done || g.finished() != done {
			t.Errorf("with %s: ended: %t, finished: %t", name, g.onlyKeeperLeft(), g.finished())
		}
		if g.keeper = new(keeperProcess); g.finished() {
			t.Errorf("with a keeper and %s: finished", name)
		}
	}
}

// What the keeper says of the work is passed on, but for what is of other work, or of another keeper.
func TestWhatTheKeeperSays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bareGuard, *incoming)
		msg    message
		told   []string
		check  func(*guard) bool
	}{
		"it is at it":           {msg: message{Kind: kindKilling}, check: func(g *guard) bool { return g.keeper.killing }},
		"it has started":        {msg: message{Kind: kindStarted, Pid: 99}, told: []string{"started 7"}, check: func(g *guard) bool { return g.work.pid == 99 }},
		"it has not":            {msg: message{Kind: kindStarted, Error: "none"}, told: []string{"started 7 none"}, check: func(g *guard) bool { return g.work == nil }},
		"it ended":              {msg: message{Kind: kindExited, Status: StatusSuccess}, told: []string{"exited 7 " + StatusSuccess}, check: func(g *guard) bool { return g.work.status == StatusSuccess }},
		"it is dead":            {msg: message{Kind: kindDead, Output: "words"}, told: []string{"dead 7 words"}, check: func(g *guard) bool { return g.work == nil }},
		"an alarm":              {msg: message{Kind: kindUnkillable, Error: "hurt"}, told: []string{"unkillable 7 hurt"}, check: func(g *guard) bool { return g.work.unkillable == "hurt" }},
		"nothing of note":       {msg: message{Kind: kindLeaseConfirmed}, check: func(g *guard) bool { return g.work != nil }},
		"other work":            {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.msg.Seq = 6 }, check: func(g *guard) bool { return g.work != nil }},
		"another keeper":        {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.keeper = new(keeperProcess) }, check: func(g *guard) bool { return g.work != nil }},
		"its end":               {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.err = io.EOF }, check: func(g *guard) bool { return g.work != nil }},
		"of no work":            {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work = nil }},
		"of a unit":             {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work.unit = new(unitKiller) }, check: func(g *guard) bool { return g.work != nil }},
		"an undo is dead":       {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.work == nil && !g.hookFailed }},
		"an undo ended well":    {msg: message{Kind: kindExited, Status: StatusSuccess}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"an undo failed":        {msg: message{Kind: kindExited, Status: "exited with status 1"}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed }},
		"an undo has started":   {msg: message{Kind: kindStarted, Pid: 99}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"an undo has not begun": {msg: message{Kind: kindStarted, Error: "none"}, change: func(b *bareGuard, _ *incoming) { b.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed && g.work == nil }},
	} {
		b := newBareGuard(t)
		b.work = &work{seq: 7, spec: &Spec{Argv: []string{"undo"}}}
		m := incoming{keeper: b.keeper, msg: c.msg}
		m.msg.Seq = 7
		if c.change != nil {
			c.change(b, &m)
		}
		b.receiveFromKeeper(m)
		b.expect(name, c.told, nil)
		if c.check != nil && !c.check(b.guard) {
			t.Errorf("%s: %+v, %+v", name, b.work, b.guard)
		}
		if failed := strings.Contains(b.logText.String(), "a pending hook has failed"); failed != b.hookFailed {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// A pid of the keeper's namespace that is nobody's any more is none here.
func TestAPidThatIsNobodysIsNone(t *testing.T) {
	b := newBareGuard(t)
	if pid := b.hostPid(77); pid != 77 {
		t.Errorf("%d in the same namespace", pid)
	}
	b.opt.Containment = PidnsContainment
	if pid := b.hostPid(noPid); pid != 0 {
		t.Errorf("%d in another", pid)
	}
}

// The daemon is told of each alarm, and of its end; the log has each once.
func TestAlarms(t *testing.T) {
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

// With its keeper the work of a child is doomed, and the daemon too; a unit's is not. At the guard's end none of it matters.
func TestWhatFollowsAKeepersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		work   *work
		over   bool
		doomed bool
	}{
		"a child": {work: &work{}, doomed: true}, "a unit": {work: &work{unit: new(unitKiller)}}, "no work": {}, "the end": {over: true},
	} {
		b := newBareGuard(t)
		k, d := b.keeper, b.daemon
		if b.work = c.work; c.over {
			b.noRespawn, b.daemon = true, nil
		}
		b.keeperExited(syscall.WaitStatus(9))
		if _, err := k.socket.Write([]byte("x")); b.keeper != nil || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %+v, %v", name, b.keeper, err)
		}
		if c.work != nil && (c.work.killing != c.doomed || c.work.keeperDead != c.doomed) {
			t.Errorf("%s: %+v", name, c.work)
		}
		if d.killing == c.over || d.abandoned == c.over || strings.Contains(b.logText.String(), "the keeper has died") == c.over {
			t.Errorf("%s: %+v; log: %s", name, d, b.logText)
		}
	}
}

// Signals are passed on to the daemon; those that ask for the end end the guard where there is none.
func TestWhatSignalsDo(t *testing.T) {
	caught := make(chan os.Signal, 1) // what is caught is not ignored by those started from here, as with nohup(1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(caught)
	b := newBareGuard(t)
	if b.handleSignal(syscall.SIGCHLD); b.stopping || !alive(b.daemon.pid) {
		t.Error("the end of a child is taken for an order")
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
