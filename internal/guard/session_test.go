package guard

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The record of work that runs says how it is contained, and nothing but the lock is left of the files after the session.
func TestSessionFileOfRunningWork(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	c := fx.credentials()
	call[int](d, "SetSession", c)
	_, pids := d.startWork(time.Hour)
	f, err := ReadSessionFile(c.File)
	if err != nil || len(f.Leaderships) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	r := f.Leaderships[0]
	if r.Name != "g" || r.Work == nil || r.Work.Pid != pids[0] || !slices.Contains(r.Env, workEnv(fx.dir)) {
		t.Errorf("%+v", r)
	}
	if r.Containment == nil || r.Containment.Mode != CgroupContainment || r.Containment.Keeper.Pid != fx.keeperPid() || r.Containment.Group == "" || r.Containment.Inode == 0 {
		t.Fatalf("containment %+v", r.Containment)
	}
	if text := read(r.Containment.StateFile); text != stateRunning {
		t.Errorf("the state file says %q", text)
	}
	call[int](d, "Kill", 0)
	call[ExitInfo](d, "Dead", 0)
	call[int](d, "ClearSession", 0)
	call[int](d, "Start", fx.shell("exit 0")) // creates none again
	session, _ := filepath.Glob(c.File + "*")
	temporary, _ := filepath.Glob(filepath.Join(fx.dir, ".zkelectd*"))
	if left := append(session, temporary...); !slices.Equal(left, []string{c.File + lockSuffix}) {
		t.Errorf("left behind: %q", left)
	}
}

// EnsureDead must know reliably whether the owners of a session have ended: otherwise the session could be closed while work
// runs, or could never be closed.
func TestEnsureDeadChecksOwners(t *testing.T) {
	own, ok := Identify("daemon", os.Getpid())
	if !ok || own.Started == 0 {
		t.Fatalf("%+v", own)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	eventually(t, "its exit", func() bool { return !alive(zombie.Process.Pid) })
	dead, ok := Identify("leader-only work", zombie.Process.Pid)
	if !ok {
		t.Fatal("cannot identify a zombie")
	}
	reused, other := own, Process{Role: "guard", Pid: 1 << 30, Started: 1}
	reused.Started++
	for name, c := range map[string]struct {
		file  SessionFile
		alive bool
	}{
		"alive":             {SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{own}}, true},
		"the last is alive": {SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{other, dead, reused, own}}, true},
		"another boot":      {SessionFile{Boot: "an earlier boot", Namespace: pidNamespace(), Processes: []Process{own}}, false},
		"a reused pid":      {SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{reused}}, false},
		"no such pid":       {SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{other}}, false},
		"a zombie":          {SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: []Process{dead}}, false},
		"no processes":      {SessionFile{Boot: currentBootID(), Namespace: pidNamespace()}, true},
		"no boot":           {SessionFile{Namespace: pidNamespace(), Processes: []Process{other}}, true},
		"no namespace":      {SessionFile{Boot: currentBootID(), Processes: []Process{other}}, true},
		"another namespace": {SessionFile{Boot: currentBootID(), Namespace: "pid:[1]", Processes: []Process{other}}, true},
	} {
		if err := c.file.EnsureDead(0); (err != nil) != c.alive {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A session file names programs to run and processes to kill, so it is refused if another user could have written it.
func TestSessionFileOfAnotherUserIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session")
	f := SessionFile{Session: Credentials{Servers: []string{"a:1"}, ID: 5}, Processes: []Process{{"guard", 1, 2}}}
	for name, change := range map[string]func() error{
		"another user":    func() error { return os.Chown(path, 65534, 65534) },
		"group-writable":  func() error { return os.Chmod(path, 0o660) },
		"world-writable":  func() error { return os.Chmod(path, 0o602) },
		"a symbolic link": func() error { return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path)) },
	} {
		if err := errors.Join(f.Write(path), change()); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSessionFile(path)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		} else if _, advice, advised := strings.Cut(err.Error(), "remove it"); advised && !strings.Contains(advice, "not while") {
			t.Errorf("%s: %v; without the file nobody finds the work", name, err)
		}
	}
}

// A reader sees either the old file or the new one, and only its owner can read it.
func TestWriteReplacesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := SessionFile{Session: Credentials{Servers: []string{"a:1"}, ID: -5, Password: []byte{0, 255}, Timeout: time.Second}, Boot: "b", Processes: []Process{{"guard", 1, 2}}}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSessionFile(path); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	RemoveSessionFile(Credentials{ID: -6, File: path}) // another session
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	RemoveSessionFile(Credentials{ID: -5, File: path})
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// Any content is either refused with an error that names the file, or can be written again.
func FuzzReadSessionFile(f *testing.F) {
	f.Add([]byte(`{"session":{"servers":["a:1"],"id":7,"password":"AAE=","timeout":1,"access":{"acl":"private"}},"boot":"b","processes":[{"role":"guard","pid":1,"started":2}]}`))
	f.Add([]byte(`{"session":{"servers":[],"id":7}}`))
	f.Add([]byte(`{"session":{"servers":["a"],"id":-1},"processes":[{"pid":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "session")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := ReadSessionFile(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		if err := read.Write(path); err != nil {
			t.Fatal(err)
		}
		once, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadSessionFile(path)
		if err != nil || again.Session.ID != read.Session.ID || !reflect.DeepEqual(again.Processes, read.Processes) {
			t.Errorf("%q became %s, %v", data, once, err)
		}
	})
}

// What is no session file is refused: it names processes to kill, so process 1 could not be work.
func TestSessionFileErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "session")
	for _, content := range []string{
		"", "nonsense", "[]", "{}", `{"session":{"id":5}}`, `{"session":{"servers":["a:1"]}}`,
		`{"session":{"servers":["a:1"],"id":5},"survivors":[{"work":{"pid":1}}]}`,
	} {
		put(t, path, content)
		if f, err := ReadSessionFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %+v, %v", content, f, err)
		}
	}
	missing := filepath.Join(dir, "no", "session")
	if _, err := ReadSessionFile(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
	if err := (SessionFile{}).Write(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
	if err := (SessionFile{}).Write(dir); err == nil || !strings.Contains(err.Error(), dir) { // not over a directory
		t.Error(err)
	}
	RemoveSessionFile(Credentials{})
	RemoveSessionFile(Credentials{File: missing}) // does nothing
}

// PendingHooks returns the pending hooks of all leaderships.
func (f SessionFile) PendingHooks() []Spec {
	var all []Spec
	for _, r := range f.all() {
		all = append(all, r.PendingHooks...)
	}
	return all
}

// A pending hook that has succeeded does not run again with one that has failed, and one that is optional fails nothing.
func TestRunPendingHooks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "session")
	hooks := []Spec{{Path: "post_stop"}, {Path: "fails"}, {Path: "on_change", Optional: true}}
	first := SessionFile{Session: Credentials{Servers: []string{"a:1"}, ID: 5}, Survivors: []LeadershipRecord{{Name: "g", PendingHooks: hooks}}}
	if err := first.Write(file); err != nil {
		t.Fatal(err)
	}
	var ran []string
	fails := true
	run := func(s Spec) error {
		ran = append(ran, s.Path)
		if s.Path == "fails" && fails {
			return errors.New("no")
		}
		return nil
	}
	for _, want := range []struct {
		err, optional bool
		ran           []string
	}{
		{true, true, []string{"post_stop", "fails"}}, {false, false, []string{"fails"}}, {},
	} {
		f, err := ReadSessionFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ran = nil
		optional, err := f.RunPendingHooks(file, run)
		if (err != nil) != want.err || (len(optional) == 1) != want.optional || !slices.Equal(ran, want.ran) {
			t.Errorf("ran %q, left %+v to the caller, %v; want %+v", ran, optional, err, want)
		}
		fails = false
	}
}

func runNothing(Spec) error { return nil }
