package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/procinfo"
	"zkelectd/internal/status"
)

// heirs is a group with the hook and the preparation of an heir, which write to files.
type heirs struct {
	*heirWatch
	t        *testing.T
	hook, at string
}

func watchHeirs(t *testing.T, prepare string, keep bool) *heirs {
	t.Helper()
	dir := t.TempDir()
	w := &heirs{t: t, hook: filepath.Join(dir, "hook"), at: filepath.Join(dir, "prepare")}
	cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT=/g", "ZKELECTD_CHILD_NONE=true")
	c := &cfg.Groups[0].Config
	c.Hooks.OnHeir = []string{"sh", "-c", "echo $ZKELECTD_HEIR $ZKELECTD_LEADER $ZKELECTD_LEADER_SITE $ZKELECTD_TERM $ZKELECTD_NODE $EXTRA >>" + w.hook + "; cat >>" + w.hook}
	c.Child.Prepare.Command = []string{"sh", "-c", "echo began $ZKELECTD_HEIR $ZKELECTD_TERM >>" + w.at + "; " + prepare}
	c.Child.Prepare.Keep = keep
	c.Child.Env = map[string]string{"EXTRA": "east"}
	h := newOnly(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	w.heirWatch = h.heirs
	w.open()
	t.Cleanup(func() { w.close(context.Background()) })
	return w
}

// sees shows a view with the heir.
func (w *heirs) sees(heir bool, elected string) {
	w.observe(status.Daemon{Node: "me", Site: "dc1", Loop: true, Session: true, IsHeir: heir, Elected: elected, ElectedSite: "dc9", ElectedTerm: 7})
}

// wrote waits until a file has n lines, and returns them.
func (w *heirs) wrote(path string, n int) []string {
	w.t.Helper()
	var lines []string
	wait(w.t, fmt.Sprintf("%d lines", n), func() bool {
		data, _ := os.ReadFile(path)
		lines = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		return len(data) > 0 && len(lines) >= n
	}, func() string { return strings.Join(lines, "\n") })
	if len(lines) != n {
		w.t.Fatalf("%d lines, want %d: %q", len(lines), n, lines)
	}
	return lines
}

// ended waits until no preparation runs.
func (w *heirs) ended() {
	w.t.Helper()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last == nil {
		w.t.Fatal("none has run")
	}
	<-last.done
}

func (w *heirs) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running != nil
}

func TestHeirHookRunsAtEachChange(t *testing.T) {
	w := watchHeirs(t, "true", false)
	w.sees(false, "b") // nothing: it was not the heir before either
	w.sees(true, "b")
	w.sees(true, "b")
	w.sees(false, "c")
	lines := w.wrote(w.hook, 4)
	if lines[0] != "true b dc9 7 me east" || lines[2] != "false c dc9 7 me east" {
		t.Errorf("variables %q", lines)
	}
	var got status.HeirChange
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil || got.Time.IsZero() {
		t.Fatalf("%v: %q", err, lines[1])
	}
	got.Time = got.Time.Truncate(0)
	want := status.HeirChange{Node: "me", Site: "dc1", Group: got.Group, Root: "/g", Heir: true, Leader: "b", Term: 7, Time: got.Time}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestThePreparationEndsWithTheHeir(t *testing.T) {
	w := watchHeirs(t, "exec sleep 1000", false)
	w.sees(true, "b")
	if got := w.wrote(w.at, 1); got[0] != "began true 7" {
		t.Errorf("%q", got)
	}
	w.sees(true, "b")
	if !w.runs() {
		t.Error("it must go on")
	}
	w.sees(false, "b")
	w.ended()
	w.sees(true, "b") // it runs again
	w.wrote(w.at, 2)
	w.sees(false, "me") // elected
	w.ended()
	if err := w.problem(); err != nil {
		t.Errorf("being killed is no failure: %v", err)
	}
}

func TestThePreparationGoesOnUntilTheWorkStarts(t *testing.T) {
	w := watchHeirs(t, "exec sleep 1000", true)
	w.sees(true, "b")
	w.wrote(w.at, 1)
	w.sees(false, "me") // elected
	if !w.runs() {
		t.Fatal("it must go on")
	}
	w.beforeWork()
	w.ended()
	w.sees(false, "me")
	if w.runs() {
		t.Error("it must not run beside the work")
	}
	w.sees(true, "b")
	w.wrote(w.at, 2)
	w.sees(false, "c") // another member is elected
	w.ended()
}

func TestAFailedPreparationIsAProblem(t *testing.T) {
	w := watchHeirs(t, "echo no cache here >&2; exit 3", false)
	w.sees(true, "b")
	wait(t, "the problem", func() bool { return w.problem() != nil }, func() string { return "" })
	if text := w.problem().Error(); !strings.Contains(text, "child.prepare sh failed") || !strings.Contains(text, "no cache here") {
		t.Errorf("problem %q", text)
	}
	if n := w.group.resource.settings().Node; len(n.Unprepared) != 1 || !strings.Contains(n.Unprepared[0], "no cache here") || len(n.Problems) != 0 {
		t.Errorf("the node's record has %+v", n)
	}
	w.sees(true, "b") // it does not run again while this host remains the heir
	w.wrote(w.at, 1)
	w.reconsider() // a reload, after its cause was corrected
	w.wrote(w.at, 2)
	w.ended()
	wait(t, "the problem", func() bool { return w.problem() != nil }, func() string { return "" })
	w.reload(nil)
	if n := w.group.resource.settings().Node; len(n.Unprepared) != 0 {
		t.Errorf("it is removed, but the node's record has %+v", n)
	}
}

// reload changes the command.
func (w *heirs) reload(argv []string) {
	next := w.group.config()
	next.Child.Prepare.Command = argv
	w.group.inForce.Store(&next)
	w.reconsider()
}

// A reload ends a preparation that has changed, and starts the new one.
func TestAReloadChangesThePreparation(t *testing.T) {
	w := watchHeirs(t, "exec sleep 1000", false)
	w.sees(true, "b")
	w.wrote(w.at, 1)
	w.mu.Lock()
	first := w.last
	w.mu.Unlock()
	w.reconsider() // nothing has changed
	if !w.runs() {
		t.Error("it must go on")
	}
	w.reload([]string{"sh", "-c", "echo changed >>" + w.at + "; exec sleep 1000"})
	<-first.gone
	if lines := w.wrote(w.at, 2); lines[1] != "changed" {
		t.Errorf("%q", lines)
	}
	w.reload(nil)
	w.ended()
	if w.runs() {
		t.Error("it must end")
	}
	w.sees(false, "b")
	w.reload([]string{"sh", "-c", "echo again >>" + w.at})
	if w.runs() {
		t.Error("it must not run where this host is not the heir")
	}
	w.sees(true, "b")
	w.wrote(w.at, 3)
}

// It runs like the child: in its directory, with its environment.
func TestThePreparationRunsInTheDirectoryOfTheChild(t *testing.T) {
	w := watchHeirs(t, "pwd >>$AT", false)
	dir := t.TempDir()
	next := w.group.config()
	next.Child.Dir, next.Child.Env = dir, map[string]string{"AT": w.at}
	w.group.inForce.Store(&next)
	w.sees(true, "b")
	if lines := w.wrote(w.at, 2); lines[1] != dir {
		t.Errorf("%q, want %s", lines, dir)
	}
}

// A process that leaves the group of child.prepare ends with it.
func TestThePreparationEndsWithWhatHasLeftItsGroup(t *testing.T) {
	w := watchHeirs(t, `setsid sh -c 'echo $$ >>$AT; exec sleep 1000' & wait`, false)
	next := w.group.config()
	next.Child.Env = map[string]string{"AT": w.at}
	w.group.inForce.Store(&next)
	w.sees(true, "b")
	pid, err := strconv.Atoi(w.wrote(w.at, 2)[1])
	if err != nil {
		t.Fatal(err)
	}
	w.sees(false, "b")
	wait(t, "the process ends", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
}

// zombie reports whether a process has ended, and its parent has not waited for it.
func zombie(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && s.Ended()
}
