package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watchInterval is the interval of the watches in tests.
const watchInterval = 50 * time.Millisecond

// lists returns a channel with one list of files.
func lists(files ...string) chan []string {
	c := make(chan []string, 1)
	c <- files
	return c
}

// contentOf returns the content of a file, "" if there is none.
func contentOf(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

// startWatch watches a file, and returns a channel with its content at each change that is reported.
func startWatch(t *testing.T, path string) <-chan string {
	t.Helper()
	return startWatchOf(t, lists(path), func() string { return contentOf(path) })
}

// startWatchOf runs a watch until the end of the test, and returns a channel with the content at each change that it reports.
func startWatchOf(t *testing.T, files chan []string, content func() string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen, done := make(chan string, 100), make(chan struct{})
	go func() {
		Watch(ctx, files, watchInterval, func() { seen <- content() })
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return seen
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitForContent makes a change, waits until the watch reports that content, and returns the number of reports.
func waitForContent(t *testing.T, seen <-chan string, want string, change func()) int {
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

// waitForWatch makes changes until the watch reports one.
func waitForWatch(t *testing.T, seen <-chan string, dir string, change func(i int)) {
	t.Helper()
	tick := time.NewTicker(4 * watchInterval)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for i := 0; ; i++ {
		change(i)
		select {
		case <-seen:
			return
		case <-tick.C:
		case <-limit:
			t.Fatalf("no change in %s is noticed", dir)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// watched returns a file that is watched, and what is seen of it.
func watched(t *testing.T) (dir, path string, seen <-chan string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "z.yaml")
	write(t, path, "first")
	seen = startWatch(t, path)
	waitForWatch(t, seen, dir, func(i int) { write(t, path, strings.Repeat("x", i+1)) })
	return dir, path, seen
}

func TestWatchNoticesEveryKindOfWrite(t *testing.T) {
	t.Parallel()
	_, path, seen := watched(t)
	waitForContent(t, seen, "in place", func() { write(t, path, "in place") })
	waitForContent(t, seen, "renamed", func() {
		write(t, path+".new", "renamed")
		rename(t, path+".new", path)
	})
	waitForContent(t, seen, "gone and back", func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "gone and back")
	})
	waitForContent(t, seen, "", func() { write(t, path, "") })
}

// A file that is written in many steps is read after the last one.
func TestManyWritesAreOneChange(t *testing.T) {
	t.Parallel()
	_, path, seen := watched(t)
	var text string
	n := waitForContent(t, seen, strings.Repeat("line\n", 200), func() {
		for range 200 {
			text += "line\n"
			write(t, path, text)
		}
	})
	if n > 5 {
		t.Errorf("writes without a pause were reported %d times", n)
	}
}

// Files with credentials and tokens are watched like the configuration file, in whatever directory they are.
func TestWatchedFiles(t *testing.T) {
	credentials, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "tokens")
	own := file(t, "")
	c := Config{ZooKeeper: ZooKeeper{Auth: Auth{File: "zookeeper"}}, HTTP: HTTP{TokenFile: elsewhere}}
	getenv := func(string) string { return credentials }
	files := c.WatchedFiles(own, getenv)
	if want := []string{own, filepath.Join(credentials, "zookeeper"), elsewhere}; !slices.Equal(files, want) {
		t.Fatalf("%q, want %q", files, want)
	}
	if files := c.WatchedFiles("", getenv); len(files) != 2 {
		t.Errorf("without a configuration file: %q", files)
	}
	if files := (Config{}).WatchedFiles("", getenv); len(files) != 0 {
		t.Errorf("without any file: %q", files)
	}
	seen := startWatchOf(t, lists(files...), func() string { return "" })
	for i, path := range files {
		waitForWatch(t, seen, path, func(n int) { write(t, path, strings.Repeat("x", i*1000+n)) })
	}
}

// Every change of the group files is noticed, also after the directory was replaced; other files do not count.
func TestWatchNoticesGroupFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t, "", map[string]string{"a": lockOnly})
	files := (Config{GroupsDir: h.dir}).WatchedFiles(h.main, func(string) string { return "" })
	if want := []string{h.main, h.dir}; !slices.Equal(files, want) {
		t.Fatalf("%q, want %q", files, want)
	}
	seen := startWatchOf(t, lists(files...), func() string {
		r, err := ReloadHost(h.sources(), Host{}, true)
		return fmt.Sprintf("%s %d %t", names(r.Host), len(r.Refused), err == nil)
	})
	waitForWatch(t, seen, h.dir, func(i int) { h.put("a.yaml", fmt.Sprintf("{node: {priority: %d}, child: {none: true}}", i)) })
	for _, step := range []struct {
		want   string
		change func()
	}{
		{"a b 0 true", func() { h.put("b.yaml", lockOnly) }},
		{"a 1 true", func() { h.put("b.yaml", "") }},
		{"a 0 true", func() { h.remove("b.yaml") }},
		{"c 0 true", func() { rename(t, h.path("a.yaml"), h.path("c.yaml")) }},
		{"d 0 true", func() {
			rename(t, h.dir, h.dir+".old")
			if err := os.Mkdir(h.dir, 0o700); err != nil {
				t.Error(err)
			}
			h.put("d.yaml", lockOnly)
		}},
		{"d e 0 true", func() { h.put("e.yaml", lockOnly) }},
		{" 0 false", func() { h.remove("d.yaml", "e.yaml") }},
		{"f 0 true", func() { h.put("README", "x"); h.put("f.yaml", lockOnly) }},
	} {
		waitForContent(t, seen, step.want, step.change)
	}
}

// A file that a later list names is watched, too, and counts as changed, because it may have changed before. A file
// that the list has no longer does not count.
func TestWatchTakesOtherFiles(t *testing.T) {
	t.Parallel()
	first, second := file(t, "first"), filepath.Join(t.TempDir(), "tokens")
	write(t, second, "a")
	files := lists(first)
	seen := startWatchOf(t, files, func() string { return contentOf(second) })
	waitForWatch(t, seen, first, func(i int) { write(t, first, strings.Repeat("x", i+1)) })
	waitForContent(t, seen, "a", func() { files <- []string{second} })
	waitForContent(t, seen, "b", func() { write(t, second, "b") })
	write(t, first, "not watched")
	if n := waitForContent(t, seen, "c", func() { write(t, second, "c") }); n != 1 {
		t.Errorf("one change was reported %d times", n)
	}
}

// A file that changes all the time, such as one that a program writes again and again, does not keep others from
// being read.
func TestChangeIsNoticedBesideABusyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, busy := file(t, "first"), file(t, "")
		ctx, cancel := context.WithCancel(t.Context())
		done, seen := make(chan struct{}), ""
		go func() {
			defer close(done)
			Watch(ctx, lists(path, busy), WatchInterval, func() { seen = contentOf(path) })
		}()
		synctest.Wait()
		write(t, path, "second")
		for n := range maxLooks + 2 {
			write(t, busy, strings.Repeat("x", n+1))
			<-time.After(WatchInterval)
		}
		cancel()
		<-done
		if seen != "second" {
			t.Errorf("%q was read", seen)
		}
	})
}

// A link leads to another directory, in which Kubernetes replaces a link.
func TestWatchFollowsLinks(t *testing.T) {
	dir, mounted := t.TempDir(), t.TempDir()
	path, elsewhere := filepath.Join(dir, "z.yaml"), file(t, "elsewhere")
	link := func(from, to string) {
		t.Helper()
		if err := os.Symlink(to, from+".new"); err != nil {
			t.Fatal(err)
		}
		rename(t, from+".new", from)
	}
	version := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(mounted, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(mounted, name, "z.yaml"), "the same")
		link(filepath.Join(mounted, "..data"), name)
	}
	version("..1")
	link(filepath.Join(mounted, "z.yaml"), "..data/z.yaml")
	link(path, filepath.Join(mounted, "z.yaml"))
	for n, change := range []func(){
		func() { write(t, path, "other content") },
		func() { version("..2") },
		func() { link(path, elsewhere) },
	} {
		before := signature(path)
		if change(); before == "" || signature(path) == before {
			t.Errorf("%d: the signature stays %q", n, before)
		}
	}
}

// A file system that does not answer, such as NFS without its server, does not hold up the end of the daemon.
func TestAHangingFileSystemDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	hangs, over := make(chan struct{}), make(chan struct{})
	defer func() {
		close(hangs)
		<-over
	}()
	got := look(ctx, func() map[string]string {
		defer close(over)
		cancel()
		<-hangs
		return map[string]string{"a": "b"}
	})
	if got != nil {
		t.Errorf("%v", got)
	}
}
