package group

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/testhelper"
)

// taken is a registration by another session, last changed at zxid modified.
func taken(rec cluster.Node, modified int64) *store.TakenError {
	return &store.TakenError{Path: "/c/nodes/a", Session: 7, Node: cluster.Stored[cluster.Node]{
		Exists: true, Stat: cluster.Stat{Owner: 7, Modified: modified}, Record: rec}}
}

// dead returns the record of a process on this host that has ended.
func dead(t *testing.T, me Identity) cluster.Node {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cluster.Node{ID: "a", Host: me.Host, Boot: me.Boot, PID: cmd.Process.Pid, Started: 1, SessionTimeout: cluster.Duration(6 * time.Second)}
}

// A daemon waits for its own old session without a time limit, because each change of ZooKeeper's leader prolongs it.
func TestOwnOldSessionIsAwaitedWithoutLimit(t *testing.T) {
	me := Identify(os.Getpid())
	own := cluster.Node{ID: "a", Host: me.Host, Boot: me.Boot, PID: me.PID, Started: me.Started, SessionTimeout: cluster.Duration(6 * time.Second)}
	rebooted := own
	rebooted.Boot = "another"
	for name, rec := range map[string]cluster.Node{"this process": own, "a dead one": dead(t, me), "before a reboot": rebooted, "unreadable": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				w := holderWatch{me: me, log: slog.New(slog.NewTextHandler(&log, nil))}
				began := time.Now()
				for time.Since(began) < 24*time.Hour {
					next, err := w.observe(taken(rec, 1), 6*time.Second)
					if err != nil {
						t.Fatalf("after %s: %v", time.Since(began), err)
					}
					if next <= 0 || next > takenLogMax {
						t.Fatalf("tries again after %s", next)
					}
					<-time.After(next)
				}
				if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "waited=2s") || !strings.Contains(text, "session=0x7") {
					t.Errorf("logged: %.1000s", text)
				}
				if n := strings.Count(log.String(), "\n"); n > 24*60+10 {
					t.Errorf("%d lines in a day", n)
				}
			})
		})
	}
}

// A registration that no session owns never ends by itself. It is named at growing intervals, whatever its record claims.
func TestRegistrationWithoutSessionIsNamedAtGrowingIntervals(t *testing.T) {
	me := Identify(os.Getpid())
	other := cluster.Node{ID: "a", Host: me.Host, Boot: me.Boot, PID: os.Getppid()}
	other.Started, _ = procinfo.StartTime(other.PID)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := holderWatch{me: me, log: slog.New(slog.NewTextHandler(&log, nil))}
		began := time.Now()
		for i := int64(0); time.Since(began) < time.Hour; i++ {
			x := taken(other, i)
			x.Session, x.Err = 0, cluster.ErrNotEmpty
			next, err := w.observe(x, 6*time.Second)
			if err != nil || next < time.Second || next > takenLogMax {
				t.Fatalf("after %s: %s, %v", time.Since(began), next, err)
			}
			<-time.After(next)
		}
		text := log.String()
		if n := strings.Count(text, "\n"); n > 70 || !strings.Contains(text, "no session owns znode /c/nodes/a") || !strings.Contains(text, "deleteall /c/nodes/a") {
			t.Errorf("%d lines: %.600s", n, text)
		}
	})
}

// Writes long after its session would have ended prove that a daemon on another host is alive.
func TestLiveHolderOnAnotherHost(t *testing.T) {
	there := cluster.Node{ID: "a", Host: "elsewhere", Boot: "another", PID: 1, SessionTimeout: cluster.Duration(6 * time.Second)}
	synctest.Test(t, func(t *testing.T) {
		w := holderWatch{me: Identify(os.Getpid()), log: slog.New(slog.DiscardHandler)}
		observe := func(modified int64) error {
			_, err := w.observe(taken(there, modified), 6*time.Second)
			return err
		}
		for i := range int64(10) { // it may be about to end
			if err := observe(i); err != nil {
				t.Fatalf("after %s: %v", time.Since(w.since), err)
			}
			<-time.After(time.Second)
		}
		<-time.After(10 * time.Second)
		if err := observe(20); err != nil {
			t.Fatalf("at the first write: %v", err)
		}
		<-time.After(time.Hour)
		if err := observe(20); err != nil {
			t.Fatalf("although nothing was written: %v", err)
		}
		err := observe(21)
		if err == nil || !strings.Contains(err.Error(), "elsewhere") || !strings.Contains(err.Error(), "it is alive") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	me := Identify(os.Getpid())
	started, err := procinfo.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := cluster.Node{Host: me.Host, Boot: me.Boot, PID: cmd.Process.Pid, Started: started}
	if !me.otherAlive(other) {
		t.Error("a live process of this host is reported dead")
	}
	for name, n := range map[string]cluster.Node{
		"an earlier run":         {Host: me.Host, Boot: me.Boot, PID: me.PID, Started: me.Started},
		"a pid that was reused":  {Host: me.Host, Boot: me.Boot, PID: other.PID, Started: started + 1},
		"before the last boot":   {Host: me.Host, Boot: "other", PID: other.PID, Started: started},
		"of another host":        {Host: "other", Boot: me.Boot, PID: other.PID, Started: started},
		"a record without a pid": {Host: me.Host, Boot: me.Boot},
	} {
		if me.otherAlive(n) {
			t.Errorf("%s is reported alive", name)
		}
	}
	cmd.Process.Kill()
	testhelper.Eventually(t, 30*time.Second, "a zombie is not reported alive", func() bool { return !me.otherAlive(other) })
	cmd.Wait()
	if me.otherAlive(other) || !me.isOwnPast(other) {
		t.Error("a dead process is reported alive")
	}
}
