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
	l := newBareGuard(t)
	obeys := func(m message, daemon, keeper []string) {
		t.Helper()
		if err := l.handle(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		l.expect(string(m.Kind), daemon, keeper)
	}
	refuses := func(m message) {
		t.Helper()
		if err := l.handle(m); !errors.Is(err, errProtocol) {
			t.Errorf("%+v: %v", m, err)
		}
		l.expect(string(m.Kind), nil, nil)
	}
	at := boottime.Now() + time.Hour
	if err := l.handle(message{Kind: kindLease, At: at}); err != nil || l.lease != at {
		t.Errorf("the lease: %v, %s", err, l.lease)
	}
	for who, f := range map[string]*os.File{"keeper": l.keeperEnd, "daemon": l.daemonEnd} {
		if m, err := readFrame(f); err != nil || m.At != at || m.Kind != map[string]kind{"keeper": kindLease, "daemon": kindLeaseConfirmed}[who] {
			t.Errorf("the %s is told %+v, %v", who, m, err)
		}
	}
	obeys(message{Kind: kindHeartbeat, At: at + 1}, nil, nil)
	if l.heartbeatDeadline != at+1 {
		t.Errorf("it may be silent until %s", l.heartbeatDeadline)
	}
	obeys(message{Kind: kindHeartbeat}, nil, nil)
	if l.heartbeatDeadline != 0 {
		t.Error("it need not beat")
	}
	obeys(message{Kind: kindAlive}, nil, nil)
	obeys(message{Kind: kindNotify, Notify: "nobody listens"}, nil, nil)
	c := &Credentials{ID: 5}
	obeys(message{Kind: kindSession, Session: c}, nil, nil)
	obeys(message{Kind: kindPendingHooks, PendingHooks: []Spec{{Path: "undo"}}}, nil, nil)
	obeys(message{Kind: kindConfig, Config: []byte("good")}, nil, nil)
	if l.session != c || len(l.pendingHooks) != 1 || string(l.lastConfig) != "good" {
		t.Errorf("%v, %v, %q", l.session, l.pendingHooks, l.lastConfig)
	}
	refuses(message{Kind: "sing"})
	refuses(message{Kind: kindStart, Seq: 7})
	refuses(message{Kind: kindStart, Seq: 7, Spec: &Spec{Path: "/bin/true"}})
	l.work = &work{seq: 7, spec: new(Spec)}
	refuses(message{Kind: kindStart, Seq: 8, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}})
	obeys(message{Kind: kindKill, Seq: 8}, nil, nil)
	obeys(message{Kind: kindStop, Seq: 8}, nil, nil)
	if l.work.killing {
		t.Error("what is for other work counts")
	}
	if obeys(message{Kind: kindKill, Seq: 7}, nil, nil); !l.work.killing {
		t.Error("not killed")
	}
	l.work = nil
	obeys(message{Kind: kindKill, Seq: 7}, nil, nil) // it has ended meanwhile
	obeys(message{Kind: kindStart, Seq: 9, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, nil, []string{"start 9"})
	if w := l.work; w == nil || w.seq != 9 || l.keeper.killing {
		t.Errorf("%+v", w)
	}
	l.work, l.lease = nil, boottime.Now()
	obeys(message{Kind: kindStart, Seq: 10, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 10 there is no lease"}, nil)
	l.lease = 0
	obeys(message{Kind: kindStart, Seq: 11, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 11 there is no lease"}, nil)
	l.lease, l.keeper = at, nil
	obeys(message{Kind: kindStart, Seq: 12, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}}, []string{"started 12 " + errNoKeeper.Error()}, nil)
	if l.work != nil {
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
		l := newBareGuard(t)
		l.lease = 5
		if c.letter.daemon = l.daemon; c.stranger {
			c.letter.daemon = new(daemon)
		}
		l.daemon.gone = c.gone
		l.receiveFromDaemon(c.letter)
		if heard := l.lease == 77; heard != c.heard {
			t.Errorf("%s: heard: %t", name, heard)
		}
		if d := l.daemon; d.gone != (c.gone || c.hungUp || c.doomed) || d.killing != c.doomed || c.letter.daemon.socketClosed != (c.letter.err != nil) {
			t.Errorf("%s: %+v", name, d)
		}
		if c.hungUp && !isNear(l.heartbeatDeadline, exitTimeout) || !c.hungUp && l.heartbeatDeadline != 0 {
			t.Errorf("%s: it may be silent until %s", name, l.heartbeatDeadline)
		}
		if logged := strings.Contains(l.logText.String(), "killing the daemon"); logged != c.doomed {
			t.Errorf("%s: the log says %q", name, l.logText)
		}
	}
}

// What a dead daemon had said of what is left to do counts until nothing more comes, unless it had hung up before.
func TestLastWords(t *testing.T) {
	for _, gone := range []bool{false, true} {
		l := newBareGuard(t)
		late := l.daemon
		late.gone, l.deadDaemon, l.daemon = gone, late, nil
		for _, m := range []message{{Kind: kindSession, Session: &Credentials{ID: 5}}, {Kind: kindPendingHooks, PendingHooks: []Spec{{}}}, {Kind: kindConfig, Config: []byte("c")}, {Kind: kindLease, At: 77}, {Kind: "sing"}} {
			l.receiveFromDaemon(incoming{daemon: late, msg: m})
		}
		if heard := !gone; (l.session != nil) != heard || (len(l.pendingHooks) == 1) != heard || (l.lastConfig != nil) != heard || l.lease == 77 || l.deadDaemon == nil {
			t.Errorf("gone: %t: %+v", gone, l.guard)
		}
		l.receiveFromDaemon(incoming{daemon: late, err: io.EOF})
		if _, err := late.socket.Write([]byte("x")); l.deadDaemon != nil || !late.socketClosed || !errors.Is(err, os.ErrClosed) {
			t.Errorf("at its end: %+v, %v", l.deadDaemon, err)
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
		l := newBareGuard(t)
		d := l.daemon
		d.socketClosed, d.startedAt = c.read, boottime.Now()-c.age
		l.opt.Respawn, l.stopping, l.respawnDelay, l.lease, l.heartbeatDeadline = !c.once, c.stopping, c.had, 5, 6
		l.daemonExited(c.status)
		if l.daemon != nil || l.lease != 0 || l.heartbeatDeadline != 0 || l.exitStatus != c.want || l.noRespawn != c.over {
			t.Errorf("%s: %+v", name, l.guard)
		}
		if (l.deadDaemon == d) == c.read {
			t.Errorf("%s: more is expected of it: %t", name, l.deadDaemon == d)
		}
		if _, err := d.socket.Write([]byte("x")); errors.Is(err, os.ErrClosed) != c.read {
			t.Errorf("%s: its socket: %v", name, err)
		}
		if !c.over && (l.respawnDelay != c.pause || !isNear(l.respawnAt, c.pause)) || c.over && l.respawnAt != 0 {
			t.Errorf("%s: again after %s, at %s", name, l.respawnDelay, l.respawnAt)
		}
		if n := strings.Count(l.logText.String(), "level=ERROR"); n != min(1, len(c.log)) || !strings.Contains(l.logText.String(), c.log) {
			t.Errorf("%s: the log says %q", name, l.logText)
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
		"of no work":            {msg: message{Kind: kindDead}, change: func(l *bareGuard, _ *incoming) { l.work = nil }},
		"of a unit":             {msg: message{Kind: kindDead}, change: func(l *bareGuard, _ *incoming) { l.work.unit = new(unitKiller) }, check: func(g *guard) bool { return g.work != nil }},
		"an undo is dead":       {msg: message{Kind: kindDead}, change: func(l *bareGuard, _ *incoming) { l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.work == nil && !g.hookFailed }},
		"an undo ended well":    {msg: message{Kind: kindExited, Status: StatusSuccess}, change: func(l *bareGuard, _ *incoming) { l.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"an undo failed":        {msg: message{Kind: kindExited, Status: "exited with status 1"}, change: func(l *bareGuard, _ *incoming) { l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed }},
		"an undo has started":   {msg: message{Kind: kindStarted, Pid: 99}, change: func(l *bareGuard, _ *incoming) { l.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.hookFailed }},
		"an undo has not begun": {msg: message{Kind: kindStarted, Error: "none"}, change: func(l *bareGuard, _ *incoming) { l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.hookFailed && g.work == nil }},
	} {
		l := newBareGuard(t)
		l.work = &work{seq: 7, spec: &Spec{Argv: []string{"undo"}}}
		m := incoming{keeper: l.keeper, msg: c.msg}
		m.msg.Seq = 7
		if c.change != nil {
			c.change(l, &m)
		}
		l.receiveFromKeeper(m)
		l.expect(name, c.told, nil)
		if c.check != nil && !c.check(l.guard) {
			t.Errorf("%s: %+v, %+v", name, l.work, l.guard)
		}
		if failed := strings.Contains(l.logText.String(), "a pending hook has failed"); failed != l.hookFailed {
			t.Errorf("%s: the log says %q", name, l.logText)
		}
	}
}

// A pid of the keeper's namespace that is nobody's any more is none here.
func TestAPidThatIsNobodysIsNone(t *testing.T) {
	l := newBareGuard(t)
	if pid := l.hostPid(77); pid != 77 {
		t.Errorf("%d in the same namespace", pid)
	}
	l.opt.Containment = PidnsContainment
	if pid := l.hostPid(noPid); pid != 0 {
		t.Errorf("%d in another", pid)
	}
}

// The daemon is told of each alarm, and of its end; the log has each once.
func TestAlarms(t *testing.T) {
	l := newBareGuard(t)
	w := &work{seq: 7}
	for _, text := range []string{"hurt", "hurt", "", "hurt more"} {
		l.reportUnkillable(w, text)
	}
	l.expect("alarms", []string{"unkillable 7 hurt", "unkillable 7 hurt", "unkillable 7", "unkillable 7 hurt more"}, nil)
	if n := strings.Count(l.logText.String(), "cannot kill the work"); n != 2 || !strings.Contains(l.logText.String(), `reason="hurt more"`) {
		t.Errorf("the log says %s", l.logText)
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
		l := newBareGuard(t)
		k, d := l.keeper, l.daemon
		if l.work = c.work; c.over {
			l.noRespawn, l.daemon = true, nil
		}
		l.keeperExited(syscall.WaitStatus(9))
		if _, err := k.socket.Write([]byte("x")); l.keeper != nil || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %+v, %v", name, l.keeper, err)
		}
		if c.work != nil && (c.work.killing != c.doomed || c.work.keeperDead != c.doomed) {
			t.Errorf("%s: %+v", name, c.work)
		}
		if d.killing == c.over || d.gone == c.over || strings.Contains(l.logText.String(), "the keeper has died") == c.over {
			t.Errorf("%s: %+v; the log says %s", name, d, l.logText)
		}
	}
}

// Signals are passed on to the daemon; those that ask for the end end the guard where there is none.
func TestWhatSignalsDo(t *testing.T) {
	caught := make(chan os.Signal, 1) // what is caught is not ignored by those started from here, as with nohup(1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(caught)
	l := newBareGuard(t)
	if l.handleSignal(syscall.SIGCHLD); l.stopping || !alive(l.daemon.pid) {
		t.Error("the end of a child is taken for an order")
	}
	for sig, ends := range map[syscall.Signal]bool{syscall.SIGTERM: true, syscall.SIGHUP: false} {
		l := newBareGuard(t)
		l.handleSignal(sig)
		if pid := l.daemon.pid; l.stopping != ends || l.noRespawn || l.exitStatus != 0 {
			t.Errorf("%s: %+v", sig, l.guard)
		} else {
			eventually(t, "the death of the daemon", func() bool { return !alive(pid) })
		}
		l = newBareGuard(t)
		l.daemon = nil
		if l.handleSignal(sig); l.stopping != ends || l.noRespawn != ends || ends && l.exitStatus != 128+int(sig) {
			t.Errorf("%s, no daemon: %+v", sig, l.guard)
		}
	}
}
