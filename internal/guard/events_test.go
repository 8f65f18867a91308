package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
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
	at := (boottime.Now() + 2*time.Hour).Truncate(time.Microsecond)
	other := b.addLeadership(2, "h")
	abandoned := b.addLeadership(3, "i")
	abandoned.setLease(0)
	abandoned.abandoned = true
	untouched := other.lease()
	b.give(b.l, &work{seq: 7})
	b.lastLeadership = 3
	for _, l := range []*leadership{b.l, abandoned} {
		l.place.setDeadline(at)
	}
	accept(message{Kind: kindLease}, []string{"lease_confirmed 0"}, []string{"lease 0"})
	if b.l.lease() != at || other.lease() != untouched || abandoned.lease() != 0 {
		t.Errorf("the leases: %s, %s, %s", b.l.lease(), other.lease(), abandoned.lease())
	}
	accept(message{Kind: kindHeartbeat}, nil, nil)
	accept(message{Kind: kindAlive}, nil, nil)
	accept(message{Kind: kindNotify, Notify: "nobody listens"}, nil, nil)
	c := &Credentials{ID: 5}
	accept(message{Kind: kindSession, Session: c}, nil, nil)
	for _, id := range []int{2, 3} {
		accept(message{Kind: kindPendingHooks, Leadership: id, PendingHooks: []Spec{{Path: "hook"}}}, nil, nil)
		accept(message{Kind: kindRelease, Leadership: id, Release: []byte("1")}, nil, nil)
	}
	accept(message{Kind: kindConfig, Config: []byte("good")}, nil, nil)
	if b.session != c || string(b.lastConfig) != "good" || len(b.l.hooks)+len(abandoned.hooks) != 0 || len(other.hooks) != 1 || string(other.release) != "1" || b.l.release != nil || abandoned.release != nil {
		t.Errorf("%v, %q, %+v, %+v, %+v", b.session, b.lastConfig, b.l, other, abandoned)
	}
	program := &Spec{Path: "/bin/true", Argv: []string{"true"}}
	refuse(message{Kind: "sing"})
	refuse(message{Kind: kindPrepare, Leadership: 2, Seq: 9})
	refuse(message{Kind: kindPrepare, Leadership: 2, Seq: 9, Spec: &Spec{Path: "/bin/true"}})
	refuse(message{Kind: kindPrepare, Leadership: 2, Seq: 7, Spec: program}) // work with this number runs
	refuse(message{Kind: kindOpen, Leadership: 3, Name: "j"})
	accept(message{Kind: kindKill, Seq: 8}, nil, nil)
	accept(message{Kind: kindStop, Seq: 8}, nil, nil)
	accept(message{Kind: kindStart, Seq: 7}, nil, nil) // it runs already
	if b.l.work.killing {
		t.Error("a message for other work had an effect")
	}
	if accept(message{Kind: kindKill, Seq: 7}, []string{"killing 7"}, []string{"kill 7"}); !b.l.work.killing {
		t.Error("not killed")
	}
	accept(message{Kind: kindPrepare, Leadership: 1, Seq: 10, Spec: program}, []string{"prepared 10 " + errStillRuns.Error()}, nil)
	b.l.work = nil
	accept(message{Kind: kindKill, Seq: 7}, nil, nil) // it has ended in the meantime
	b.opt.Containment = ""                            // without control groups
	b.task = 20
	for seq, l := range map[int]struct {
		id int
		at time.Duration
	}{11: {1, at}, 12: {2, 0}, 13: {2, boottime.Now()}} {
		accept(message{Kind: kindPrepare, Leadership: l.id, Seq: seq, Spec: program}, []string{fmt.Sprint("prepared ", seq)}, nil)
		w := b.findWork(seq)
		if w == nil || w.launched || w.leadership.id != l.id {
			t.Fatalf("%+v", w)
		}
		w.leadership.setLease(l.at)
		if seq != 11 {
			accept(message{Kind: kindStart, Seq: seq}, []string{fmt.Sprint("started ", seq, " there is no lease")}, nil)
			if other.keeper = nil; other.work != nil {
				t.Error("there is work although none was started")
			}
			b.guard.keeper = b.keeper
			continue
		}
		accept(message{Kind: kindStart, Seq: seq}, nil, []string{fmt.Sprint("start ", w.task)})
		if !w.launched || b.guard.keeper != nil {
			t.Errorf("%+v", w)
		}
		b.guard.keeper = b.keeper
	}
	for _, id := range []int{3, 9} {
		accept(message{Kind: kindPrepare, Leadership: id, Seq: 14, Spec: program}, []string{"prepared 14 " + ErrAbandoned.Error()}, nil)
	}
	accept(message{Kind: kindAbandon, Leadership: 1}, nil, nil)
	if !b.l.abandoned || b.hasLease(b.l) || other.abandoned {
		t.Errorf("%+v, %+v", b.l, other)
	}
}

// Work that was prepared but not started ends with its leadership.
func TestAbandonedBeforeStart(t *testing.T) {
	b := newBareGuard(t)
	w := b.give(b.l, &work{seq: 7})
	w.launched = false
	if err := b.handle(message{Kind: kindAbandon, Leadership: 1}); err != nil {
		t.Fatal(err)
	}
	b.enforceAll()
	if b.sweep(w); b.l.work != nil {
		t.Errorf("%+v", w)
	}
	b.forgetLeaderships()
	b.expect("", []string{"dead 7", "gone 0"}, nil)
}

// Whatever the daemon sends, the guard neither panics nor waits, and the leaderships that a message does not name keep their leases.
func FuzzGuardMessages(f *testing.F) {
	for _, body := range []string{
		`{"kind":"lease"}`, `{"kind":"open","leadership":5,"name":"x","place":5}`, `{"kind":"abandon","leadership":1}`,
		`{"kind":"close","leadership":1}`, `{"kind":"prepare","leadership":1,"seq":3,"spec":{"path":"/x","argv":["x"],"env":null,"stop_signal":15}}`, `{"kind":"start","seq":3}`,
		`{"kind":"stop","seq":7,"grace":-1}`, `{"kind":"kill","seq":7}`, `{"kind":"pending_hooks","leadership":1,"pending_hooks":[{"path":"/x","argv":["x"],"env":null,"stop_signal":0}]}`,
		`{"kind":"release","leadership":1,"release":[1]}`, `{"kind":"session"}`, `{"kind":"heartbeat"}`, `{"kind":"config","config":"eA=="}`,
	} {
		f.Add([]byte(body), []byte(`{"kind":"abandon","leadership":1}`))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		near, far, err := socketpair()
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		defer far.Close()
		d := &daemon{pid: noPid, socket: near, out: newOutbox(near, daemonOutbox)}
		k := &keeperProcess{pid: noPid, socket: near, out: newOutbox(near, keeperOutbox), ready: true}
		g := &guard{
			board: newBareBoard(t), log: slog.New(slog.DiscardHandler), daemon: d, keeper: k, keepers: []*keeperProcess{k}, spareAt: 1 << 62,
			children: new(childList),
		}
		for id := 1; id <= 3; id++ {
			g.open(d, message{Leadership: id, Name: fmt.Sprint(id), Place: id})
			g.leaderships[id-1].setLease(boottime.Now() + time.Hour)
		}
		silent := g.leaderships[2]
		silent.work = &work{leadership: silent, seq: 1 << 40, task: 1 << 40, spec: new(Spec), keeper: k, prepared: true, launched: true}
		for _, body := range [][]byte{first, second} {
			m, err := readFrame(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)))
			named := m.Leadership == 3 || m.Seq == silent.work.seq
			if named || m.Device != nil || m.Spec != nil && (m.Spec.Unit != nil || m.Spec.Reset != nil) {
				return // a unit and a device name paths on this host
			}
			g.receiveFromDaemon(incoming{daemon: d, msg: m, err: err})
			if d.abandoned {
				return // it is killed, and its works with it
			}
			g.enforceAll()
			g.runPendingHooks()
			g.forgetLeaderships()
		}
		if !g.hasLease(silent) || silent.abandoned || silent.work == nil || silent.work.killing {
			t.Errorf("%s, %s: %+v", first, second, silent)
		}
	})
}

// A daemon that closes its socket gets time to exit; one that violates the protocol is killed. Further messages of either are
// ignored.
func TestGuardAbandonsDaemon(t *testing.T) {
	extension := message{Kind: kindLease}
	for name, c := range map[string]struct {
		former, abandoned bool
		in                incoming
		handled, hungUp   bool
		killing           bool
	}{
		"a message":            {in: incoming{msg: extension}, handled: true},
		"from a former daemon": {in: incoming{msg: extension}, former: true},
		"after it has hung up": {in: incoming{msg: extension}, abandoned: true},
		"end of file":          {in: incoming{err: io.EOF}, hungUp: true},
		"connection reset":     {in: incoming{err: syscall.ECONNRESET}, hungUp: true},
		"a broken pipe":        {in: incoming{err: syscall.EPIPE}, hungUp: true},
		"protocol error":       {in: incoming{err: errProtocol}, killing: true},
		"unknown kind":         {in: incoming{msg: message{Kind: "sing"}}, killing: true},
	} {
		b := newBareGuard(t)
		b.l.setLease(time.Microsecond)
		b.l.place.setDeadline(time.Minute)
		if c.in.daemon = b.daemon; c.former {
			c.in.daemon = new(daemon)
		}
		b.daemon.abandoned = c.abandoned
		b.receiveFromDaemon(c.in)
		if handled := b.l.lease() == time.Minute; handled != c.handled {
			t.Errorf("%s: handled: %t", name, handled)
		}
		if d := b.daemon; d.abandoned != (c.abandoned || c.hungUp || c.killing) || d.killing != c.killing || c.in.daemon.socketClosed != (c.in.err != nil) {
			t.Errorf("%s: %+v", name, d)
		}
		if at := b.daemonDeadline(); c.hungUp && !isNear(at, exitTimeout) || !c.hungUp && at != 0 {
			t.Errorf("%s: it must have exited by %s", name, at)
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
		b.l.place.setDeadline(time.Minute)
		for _, m := range []message{
			{Kind: kindSession, Session: &Credentials{ID: 5}}, {Kind: kindOpen, Leadership: 2, Name: "h", Place: 2}, {Kind: kindPendingHooks, Leadership: 2, PendingHooks: []Spec{{}}},
			{Kind: kindRelease, Leadership: 1, Release: []byte("1")}, {Kind: kindConfig, Config: []byte("c")}, {Kind: kindLease}, {Kind: "sing"},
		} {
			b.receiveFromDaemon(incoming{daemon: d, msg: m})
		}
		handled := !abandoned
		if (b.session != nil) != handled || (len(b.leaderships) == 2 && len(b.leaderships[1].hooks) == 1) != handled || (b.l.release != nil) != handled || (b.lastConfig != nil) != handled || b.l.lease() == time.Minute || b.deadDaemon == nil {
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
		b.opt.Respawn, b.stopping, b.respawnDelay = !c.final, c.stopping, c.oldDelay
		b.daemonExited(c.status)
		if b.daemon != nil || !b.mustEnd(b.l) || !isNear(b.survivedAt, minSurvival) || b.exitStatus != c.exitStatus || b.noRespawn != c.noRespawn {
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

// The guard exits when nothing is left to do, to wait for, or to kill.
func TestGuardFinished(t *testing.T) {
	for name, change := range map[string]func(*guard){
		"":                       func(*guard) {},
		"a respawn":              func(g *guard) { g.noRespawn = false },
		"a daemon":               func(g *guard) { g.daemon = new(daemon) },
		"a dead daemon":          func(g *guard) { g.deadDaemon = new(daemon) },
		"a leadership":           func(g *guard) { g.leaderships = []*leadership{{}} },
		"a session":              func(g *guard) { g.session = new(Credentials) },
		"a session being closed": func(g *guard) { g.closingSession = true },
	} {
		g := &guard{noRespawn: true}
		change(g)
		if done := name == ""; g.onlyKeepersLeft() != done || g.finished() != done {
			t.Errorf("with %s: only keepers left: %t, finished: %t", name, g.onlyKeepersLeft(), g.finished())
		}
		if g.keepers = []*keeperProcess{{}}; g.finished() {
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
		"killing":                     {msg: message{Kind: kindKilling}, check: func(g *guard) bool { return g.leaderships[0].work.confirmed }},
		"started":                     {msg: message{Kind: kindStarted, Pid: 99}, sent: []string{"started 7"}, check: func(g *guard) bool { return g.leaderships[0].work.pid == 99 }},
		"start failed":                {msg: message{Kind: kindStarted, Error: "none"}, sent: []string{"started 7 none"}, check: func(g *guard) bool { return g.leaderships[0].work == nil }},
		"exited":                      {msg: message{Kind: kindExited, Status: StatusSuccess}, sent: []string{"exited 7 " + StatusSuccess}, check: func(g *guard) bool { return g.leaderships[0].work.status == StatusSuccess }},
		"dead":                        {msg: message{Kind: kindDead, Output: "words"}, sent: []string{"dead 7 words"}, check: func(g *guard) bool { return g.leaderships[0].work == nil }},
		"unkillable":                  {msg: message{Kind: kindUnkillable, Error: "hurt"}, sent: []string{"unkillable 7 hurt"}, check: func(g *guard) bool { return g.leaderships[0].work.unkillable == "hurt" }},
		"another kind":                {msg: message{Kind: kindLeaseConfirmed}, check: func(g *guard) bool { return g.leaderships[0].work != nil }},
		"other work":                  {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.msg.Seq = 6 }, check: func(g *guard) bool { return g.leaderships[0].work != nil }},
		"another keeper":              {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.keeper = new(keeperProcess) }, check: func(g *guard) bool { return g.leaderships[0].work != nil }},
		"end of file":                 {msg: message{Kind: kindDead}, change: func(_ *bareGuard, m *incoming) { m.err = io.EOF }, check: func(g *guard) bool { return g.leaderships[0].work != nil }},
		"no work":                     {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.l.work = nil }},
		"a unit":                      {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.l.work.unit, b.l.work.keeper = new(unitContainer), nil }, check: func(g *guard) bool { return g.leaderships[0].work != nil }},
		"a hook is dead":              {msg: message{Kind: kindDead}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.leaderships[0].work == nil && !g.leaveSession }},
		"a hook succeeded":            {msg: message{Kind: kindExited, Status: StatusSuccess}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.leaveSession }},
		"a hook failed":               {msg: message{Kind: kindExited, Status: "exited with status 1"}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.leaveSession }},
		"an optional hook failed":     {msg: message{Kind: kindExited, Status: "exited with status 1"}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline, b.l.work.spec.Optional = 1, true }, check: func(g *guard) bool { return !g.leaveSession }},
		"a hook started":              {msg: message{Kind: kindStarted, Pid: 99}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline = 1 }, check: func(g *guard) bool { return !g.leaveSession }},
		"a hook could not be started": {msg: message{Kind: kindStarted, Error: "none"}, change: func(b *bareGuard, _ *incoming) { b.l.work.hookDeadline = 1 }, check: func(g *guard) bool { return g.leaveSession && g.leaderships[0].work == nil }},
	} {
		b := newBareGuard(t)
		w := b.give(b.l, &work{seq: 7, spec: &Spec{Argv: []string{"hook"}}})
		if strings.Contains(name, "hook") { // it belongs to a dead daemon
			b.l.daemon = new(daemon)
		}
		m := incoming{keeper: b.keeper, msg: c.msg}
		m.msg.Seq = 7
		if c.change != nil {
			c.change(b, &m)
		}
		b.receiveFromKeeper(m)
		b.expect(name, c.sent, nil)
		if c.check != nil && !c.check(b.guard) {
			t.Errorf("%s: %+v, %+v", name, w, b.guard)
		}
		if failed := strings.Contains(b.logText.String(), "a pending hook has failed"); failed != b.leaveSession {
			t.Errorf("%s: log: %q", name, b.logText)
		}
	}
}

// When a keeper dies, its works are killed, but not those of another, nor units, nor the daemon.
func TestKeeperExited(t *testing.T) {
	b := newBareGuard(t)
	k := b.keeper
	other := &keeperProcess{ready: true}
	child, prepared := b.give(b.l, &work{seq: 7}), b.give(b.addLeadership(2, "h"), &work{seq: 8})
	unit, elsewhere := b.give(b.addLeadership(3, "i"), &work{seq: 9, unit: new(unitContainer)}), b.give(b.addLeadership(4, "j"), &work{seq: 10, keeper: other})
	prepared.launched, b.l.keeper, b.keepers = false, k, append(b.keepers, other)
	b.keeperExited(k, syscall.WaitStatus(9))
	if _, err := k.socket.Write([]byte("x")); !k.dead || b.guard.keeper != nil || b.l.keeper != nil || len(b.keepers) != 1 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%+v, %v", k, err)
	}
	if !child.killing || unit.killing || elsewhere.killing || prepared.leadership.work != nil || b.daemon.killing || b.daemon.abandoned {
		t.Errorf("%+v, %+v, %+v, %+v", child, prepared, unit, b.daemon)
	}
	if got := b.sent(b.daemonEnd); !slices.Equal(got, []string{"killing 7", "started 8 the keeper was killed by signal 9 (killed)"}) {
		t.Errorf("sent %q", got)
	}
	if !strings.Contains(b.logText.String(), "a keeper has died") {
		t.Errorf("log: %s", b.logText)
	}
}

// A keeper that is hung is killed, unless it has other works: then it only gets no more of them, and is killed once it has none.
func TestHungKeeper(t *testing.T) {
	for _, others := range []bool{false, true} {
		b := newBareGuard(t)
		c, err := newCgroup(delegatedCgroup(), 6)
		if err != nil {
			t.Fatal(err)
		}
		w := b.give(b.l, &work{seq: 7, group: c, killing: true, killStarted: boottime.Now() - 2*keeperHungAfter, status: StatusSuccess})
		h := b.addLeadership(2, "h")
		if others {
			b.give(h, &work{seq: 8})
		}
		prepared := b.give(b.addLeadership(3, "i"), &work{seq: 9, prepared: true})
		prepared.launched = false
		b.kill(w)
		if b.keeper.retired != others || b.guard.keeper != nil {
			t.Errorf("retired: %t", b.keeper.retired)
		}
		if prepared.leadership.work != nil {
			t.Fatal("work that was prepared keeps the hung keeper")
		}
		if got := b.sent(b.daemonEnd); !slices.Equal(got, []string{"started 9 its keeper is hung"}) {
			t.Errorf("work that was prepared: %q", got)
		}
		if !others {
			eventually(t, "its death", func() bool { return !alive(b.keeper.pid) })
			c.remove()
			c.Close()
			continue
		}
		if b.sweep(w); b.l.work != nil {
			t.Error("its work does not count as dead although the control group is empty")
		}
		if b.tendKeepers(); !alive(b.keeper.pid) {
			t.Error("killed although it has work")
		}
		h.work = nil
		b.tendKeepers()
		eventually(t, "its death", func() bool { return !alive(b.keeper.pid) })
	}
}

// A daemon cannot open leaderships without limit, although
// those that it has abandoned leave their places on the board to others.
func TestLeadershipsAreLimited(t *testing.T) {
	g := &guard{board: newBareBoard(t)}
	d := new(daemon)
	for i := range maxLeaderships {
		if err := g.open(d, message{Leadership: i + 1, Place: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	g.leaderships[0].abandoned = true
	if err := g.open(d, message{Leadership: maxLeaderships + 1, Place: 1}); !errors.Is(err, errProtocol) {
		t.Error(err)
	}
}

// The daemon gets every report of an unkillable process, and of the end of that state. The log contains each reason
// once.
func TestUnkillableReports(t *testing.T) {
	b := newBareGuard(t)
	w := b.give(b.l, &work{seq: 7})
	for _, text := range []string{"hurt", "hurt", "", "hurt more"} {
		b.reportUnkillable(w, text)
	}
	b.expect("alarms", []string{"unkillable 7 hurt", "unkillable 7 hurt", "unkillable 7", "unkillable 7 hurt more"}, nil)
	log := b.logText.String()
	if n := strings.Count(log, "cannot kill the work"); n != 2 || !strings.Contains(log, `reason="hurt more"`) {
		t.Errorf("log: %s", b.logText)
	}
}
