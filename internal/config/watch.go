package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// WatchInterval is how often [Watch] looks at the files of a daemon.
const WatchInterval = time.Second

// maxLooks is after how many looks a change is reported at the latest: another file may change all the time.
const maxLooks = 10

// WatchedFiles returns what a reload reads again: the configuration file, which may be empty for none, the directory
// with the group files, and the files with credentials and tokens.
func (c Config) WatchedFiles(file string, getenv func(string) string) []string {
	var files []string
	for _, name := range []string{file, c.GroupsDir, c.ZooKeeper.Auth.File, c.HTTP.TokenFile} {
		path := name
		if name != file && name != c.GroupsDir {
			path, _ = SecretFile(name, getenv)
		}
		if path != "" && !slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	return files
}

// Watch calls changed whenever one of the files has changed, until ctx ends. It looks at them at each interval, and
// reports a change at the next one without another, since a file that is being written is not complete, or after
// maxLooks. Each value from lists replaces the files; a new one of a later list counts as changed, as it may have
// changed before it was watched. A directory counts as a file whose content is that of its group files; a file or a
// directory that is missing has not changed.
func Watch(ctx context.Context, lists <-chan []string, interval time.Duration, changed func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var files []string
	var reported, last map[string]string // signatures
	looks := 0                           // since the first one that showed a change
	for {
		select {
		case next := <-lists:
			if files = next; reported == nil {
				reported = look(ctx, func() map[string]string { return signatures(files, nil) })
			}
			maps.DeleteFunc(reported, func(file, _ string) bool { return !slices.Contains(files, file) })
		case <-tick.C:
			now := look(ctx, func() map[string]string { return signatures(files, reported) })
			if now == nil {
				return
			}
			switch looks++; {
			case maps.Equal(now, reported):
				looks = 0
			case maps.Equal(now, last), looks > maxLooks:
				reported, looks = now, 0
				changed()
			}
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// look returns what read returns, or nil if ctx ends first: a file system whose server does not answer must not hold up
// the end of the daemon.
func look(ctx context.Context, read func() map[string]string) map[string]string {
	c := make(chan map[string]string, 1)
	go func() { c <- read() }() // ends when the file system answers, or with the process
	select {
	case now := <-c:
		return now
	case <-ctx.Done():
		return nil
	}
}

// signatures returns the signatures of files. That of a missing one is what it was before.
func signatures(files []string, before map[string]string) map[string]string {
	all := make(map[string]string)
	for _, file := range files {
		if now := cmp.Or(signature(file), before[file]); now != "" {
			all[file] = now
		}
	}
	return all
}

// signature returns a text that changes with a file, or with the group files in a directory; empty for none.
func signature(path string) string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return inode(path)
	}
	var text strings.Builder
	text.WriteString("group files:")
	for _, e := range entries {
		if !notGroupFile(e.Name()) {
			fmt.Fprintf(&text, " %q %s", e.Name(), inode(filepath.Join(path, e.Name())))
		}
	}
	return text.String()
}

// inode returns a text that changes with a file; empty for none. Editors and Kubernetes replace files, or links on
// the way to them, instead of writing them: then it is another inode.
func inode(path string) string {
	var at unix.Stat_t
	if err := unix.Stat(path, &at); err != nil {
		return ""
	}
	return fmt.Sprint(at.Dev, at.Ino, at.Size, at.Ctim)
}
