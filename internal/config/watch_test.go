package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watching runs a watch and returns what it calls with the file's content at that time.
func watching(t *testing.T, path string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen, done := make(chan string, 100), make(chan error, 1)
	go func() {
		done <- Watch(ctx, []string{path}, func() {
			data, _ := os.ReadFile(path)
			seen <- string(data)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return seen
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// arrives makes a change, waits until the watch tells of that content, and returns how often it has told of anything.
func arrives(t *testing.T, seen <-chan string, want string, change func()) int {
	t.Helper()
	change()
	limit := time.After(30 * time.Second)
	for n := 1; ; n++ {
		select {
		case got := <-seen:
			if got == want {
				return n
			}
		case <-limit:
			t.Fatalf("%q was not noticed", want)
		}
	}
}

// begun returns once the watch has noticed something, so that it is known to watch.
func begun(t *testing.T, seen <-chan string, dir string, change func(i int)) {
	t.Helper()
	tick := time.NewTicker(2 * settle)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for i := 0; ; i++ {
		change(i)
		select {
		case <-seen:
			return
		case <-tick.C:
		case <-limit:
			t.Fatalf("nothing is noticed in %s", dir)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestEveryWayOfWritingAFileIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "z.yaml")
	write(t, path, "first")
	seen := watching(t, path)
	begun(t, seen, dir, func(i int) { write(t, path, strings.Repeat("x", i+1)) })
	arrives(t, seen, "in place", func() { write(t, path, "in place") })
	arrives(t, seen, "renamed", func() {
		write(t, path+".new", "renamed")
		rename(t, path+".new", path)
	})
	arrives(t, seen, "gone and back", func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "gone and back")
	})
	arrives(t, seen, "", func() { write(t, path, "") })
}

// Kubernetes swaps a link to the directory of the files.
func TestTheSwapOfALinkIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "z.yaml")
	link := func(version, text string) {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "z.yaml"), text)
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	}
	link("..1", "first")
	if err := os.Symlink(filepath.Join("..data", "z.yaml"), path); err != nil {
		t.Fatal(err)
	}
	seen := watching(t, path)
	begun(t, seen, dir, func(i int) { link("..x"+strings.Repeat("x", i), strings.Repeat("x", i+1)) })
	arrives(t, seen, "second", func() { link("..2", "second") })
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	arrives(t, seen, "third", func() { link("..3", "third") })
}

// read makes a change and waits until somebody has read the file since.
func read(t *testing.T, path string, change func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	change()
	if err := events.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Read(make([]byte, 4096)); err != nil {
		t.Fatalf("%s is not looked at: %v", path, err)
	}
}

func TestWhatChangesNothingIsNotTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "z.yaml")
	write(t, path, "first")
	seen := watching(t, path)
	begun(t, seen, dir, func(i int) { write(t, path, strings.Repeat("x", i+1)) })
	arrives(t, seen, "same", func() { write(t, path, "same") })
	read(t, path, func() { write(t, path, "same") })
	read(t, path, func() { write(t, filepath.Join(dir, "other.yaml"), "other") })
	write(t, path+".new", "same")
	read(t, path+".new", func() { rename(t, path+".new", path) })
	if n := arrives(t, seen, "next", func() { write(t, path, "next") }); n != 1 {
		t.Errorf("told %d times of one change", n)
	}
}

// A file that is written in many steps is read when it is left alone.
func TestManyWritesAreOneChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "z.yaml")
	write(t, path, "first")
	seen := watching(t, path)
	begun(t, seen, dir, func(i int) { write(t, path, strings.Repeat("x", i+1)) })
	var text string
	n := arrives(t, seen, strings.Repeat("line\n", 200), func() {
		for range 200 {
			text += "line\n"
			write(t, path, text)
		}
	})
	if n > 5 {
		t.Errorf("told %d times of what was written in one go", n)
	}
}

func TestADirectoryThatIsNotThereCannotBeWatched(t *testing.T) {
	err := Watch(t.Context(), []string{"/no/such/directory/z.yaml"}, func() {})
	if err == nil || !strings.Contains(err.Error(), "/no/such/directory/z.yaml cannot be watched (reload.watch)") {
		t.Errorf("%v", err)
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Watch(ctx, []string{file(t, "x")}, func() { t.Error("told of nothing") }); err != nil {
		t.Error(err)
	}
}

// Credentials and tokens are watched like the configuration's own file, wherever they are.
func TestCredentialsAreWatched(t *testing.T) {
	credentials, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "tokens")
	own := file(t, "")
	c := Config{ZooKeeper: ZooKeeper{Auth: Auth{File: "zookeeper"}}, HTTP: HTTP{TokenFile: elsewhere}}
	getenv := func(string) string { return credentials }
	files := c.WatchedFiles(own, getenv)
	if want := []string{own, filepath.Join(credentials, "zookeeper"), elsewhere}; !slices.Equal(files, want) {
		t.Fatalf("%q, want %q", files, want)
	}
	if files := c.WatchedFiles("", getenv); len(files) != 2 {
		t.Errorf("without a file of its own: %q", files)
	}
	if files := (Config{}).WatchedFiles("", getenv); len(files) != 0 {
		t.Errorf("with nothing to watch: %q", files)
	}
	ctx, cancel := context.WithCancel(context.Background())
	seen, done := make(chan struct{}, 100), make(chan error, 1)
	go func() { done <- Watch(ctx, files, func() { seen <- struct{}{} }) }()
	for i, path := range files {
		tick := time.NewTicker(3 * settle)
		defer tick.Stop()
		for n, noticed := 0, false; !noticed; n++ {
			write(t, path, strings.Repeat("x", i*1000+n))
			select {
			case <-seen:
				noticed = true
			case <-tick.C:
			}
			if n > 50 {
				t.Fatalf("a change of %s is not noticed", path)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A file beside it that is written all the time, such as a log, does not keep a change from being noticed.
func TestAChangeIsNoticedInARestlessDirectory(t *testing.T) {
	path := file(t, "1")
	ctx, cancel := context.WithCancel(context.Background())
	log, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(settle / 10)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
				os.WriteFile(path+".log", fmt.Appendln(nil, n), 0o600)
				if n == 20 {
					close(log)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	seen := watching(t, path)
	<-log
	if n := arrives(t, seen, "2", func() { write(t, path, "2") }); n != 1 {
		t.Errorf("told %d times", n)
	}
	cancel()
	<-done
}
