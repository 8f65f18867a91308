package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// announced is the leader-only command of comparisons. It writes its first line into a pipe when it starts, and its
// last one when it is asked to stop; $0 is its name and $1 the pipe.
const announced = `exec 3>"$1"
trap 'echo "last $0 $$" >&3; kill $! 2>/dev/null; exit 0' TERM
echo "first $0 $$" >&3
while :; do sleep 1000 & wait $!; done`

// line is a line that a command has written.
type line struct {
	word, name string
	pid        int
	at         time.Time
}

// pipe receives the lines of commands.
type pipe struct {
	path  string
	lines chan line
}

// newPipe creates a pipe, which must be closed.
func newPipe() (*pipe, error) {
	dir, err := os.MkdirTemp("", "zkelectd-bench-")
	if err != nil {
		return nil, err
	}
	p := &pipe{path: filepath.Join(dir, "lines"), lines: make(chan line, 16)}
	if err := unix.Mkfifo(p.path, 0o600); err != nil {
		p.close()
		return nil, os.NewSyscallError("mkfifo", err)
	}
	f, err := os.OpenFile(p.path, os.O_RDWR, 0) // as a writer, too: it never ends
	if err != nil {
		p.close()
		return nil, err
	}
	go p.read(f)
	return p, nil
}

func (p *pipe) close() {
	if p != nil {
		os.RemoveAll(filepath.Dir(p.path))
	}
}

// read stamps the lines of the commands as they come.
func (p *pipe) read(f *os.File) {
	for s := bufio.NewScanner(f); s.Scan(); {
		at := time.Now()
		l := line{at: at}
		if _, err := fmt.Sscanf(s.Text(), "%s %s %d", &l.word, &l.name, &l.pid); err == nil {
			p.lines <- l
		}
	}
}

// next waits for a line of a side's command.
func (p *pipe) next(ctx context.Context, word, name string) (line, error) {
	limit := time.After(time.Minute)
	for {
		select {
		case l := <-p.lines:
			if l.word == word && l.name == mark(name) {
				return l, nil
			}
		case <-limit:
			return line{}, fmt.Errorf("no command has written its %s line within a minute", word)
		case <-ctx.Done():
			return line{}, ctx.Err()
		}
	}
}

// mark is a side's name as one word.
func mark(name string) string { return strings.ReplaceAll(name, " ", "-") }

// command returns the command of a side.
func (p *pipe) command(name string) []string {
	return []string{"sh", "-c", announced, mark(name), p.path}
}
