package guard

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// The guard starts no daemon before its first keeper is ready. It says who has ended a keeper that does not become ready, and does not keep
// whoever stops it waiting.
func TestTheFirstKeeper(t *testing.T) {
	ready := incoming{msg: message{Kind: kindReady}}
	ended := incoming{err: io.EOF}
	for name, c := range map[string]struct {
		timeout time.Duration
		signals []os.Signal
		says    *incoming
		want    string // the error, after what all of them begin with
		alive   bool
		status  int
	}{
		"ready":             {time.Hour, nil, &ready, "", true, 0},
		"ready, a child":    {time.Hour, []os.Signal{syscall.SIGCHLD}, &ready, "", true, 0},
		"ready, a reload":   {time.Hour, []os.Signal{syscall.SIGHUP}, &ready, "", true, 0},
		"ended":             {time.Hour, []os.Signal{syscall.SIGCHLD}, &ended, "it was killed by signal 9 (killed) before it was ready", false, 0},
		"late":              {time.Millisecond, nil, nil, "it was not ready within 1ms, so it was killed; is this host", false, 0},
		"a request to exit": {time.Hour, []os.Signal{syscall.SIGCHLD, syscall.SIGTERM}, nil, "", false, 128 + 15},
	} {
		b := newBareGuard(t)
		b.daemon, b.keeper.ready = nil, false
		b.signals, b.fromKeeper = make(chan os.Signal, len(c.signals)), make(chan incoming, 1)
		for _, sig := range c.signals {
			b.signals <- sig
		}
		if c.says != nil {
			b.fromKeeper <- incoming{keeper: b.keeper, msg: c.says.msg, err: c.says.err}
		}
		err := b.awaitKeeper(c.timeout)
		if c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(errorText(err), "cannot start the keeper: "+c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if alive(b.keeper.pid) != c.alive || b.keeper.ready != c.alive || b.exitStatus != c.status || b.stopping != (c.status != 0) {
			t.Errorf("%s: alive: %v, %+v, exit status %d", name, alive(b.keeper.pid), b.keeper, b.exitStatus)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A keeper that does not become ready is killed, and whose work has waited for it gets to know why.
func TestAKeeperThatStartsTooSlowly(t *testing.T) {
	b := newBareGuard(t)
	k := b.keeper
	k.ready, k.readyBy = false, boottime.Now()-1
	w := b.give(b.l, &work{seq: 7})
	w.launched = false
	b.tendKeepers()
	eventually(t, "the end of the keeper", func() bool { return !alive(k.pid) })
	b.keeperExited(k, syscall.WaitStatus(syscall.SIGKILL))
	got := b.sent(b.daemonEnd)
	if len(got) != 1 || got[0] != "started 7 the keeper was not ready within 4s, so it was killed" {
		t.Errorf("sent %q", got)
	}
	if log := b.logText.String(); strings.Count(log, "is not ready in time") != 1 || strings.Contains(log, "has died") {
		t.Errorf("log: %s", log)
	}
}
