package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/zk"
)

// In a large group nearly all members have nothing to do with an election, and on hosts of their own they take no
// processor time from those that have. So they run in a process of their own here, with a low priority: the extras. The
// elector and all members that can be elected are in this process.

// extrasOf is set in the environment of the process of the extras: the address of the server, its root znode, and the
// numbers of the first member and of the one after the last.
const extrasOf = "BENCH_EXTRAS_OF"

// extrasNice is the priority of the extras, as nice takes it.
const extrasNice = "10"

// extras are members in a process of their own.
type extras struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pid   int // of the process with the members; cmd is its guard
}

// startExtras starts members, and returns when all are registered.
func (c *crowd) startExtras(from, to int) (*extras, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := &extras{cmd: exec.Command("nice", "-n", extrasNice, path)}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, guarded+"=") {
			e.cmd.Env = append(e.cmd.Env, v)
		}
	}
	e.cmd.Env = append(e.cmd.Env, fmt.Sprintf("%s=%s %s %d %d", extrasOf, c.addr, c.paths.Root, from, to))
	e.cmd.Stderr = os.Stderr
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt reaches this process only, which closes stdin
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &e.pid)
	}
	if err != nil {
		e.stop()
		return nil, fmt.Errorf("the process of the further members: %w", err)
	}
	return e, nil
}

// stop ends the process. Its sessions stay open.
func (e *extras) stop() {
	if e == nil {
		return
	}
	e.stdin.Close()
	e.cmd.Wait()
}

// runExtras runs members until stdin is closed. It writes its process id to stdout once all of them are registered.
func runExtras(ctx context.Context, guardClient *guard.Client, of string) error {
	g := &group{guard: guardClient}
	var from, to int
	if _, err := fmt.Sscan(of, &g.addr, &g.paths.Root, &from, &to); err != nil {
		return fmt.Errorf("%s: %w", extrasOf, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var err error
	if g.session, err = zk.Open(ctx, zk.Options{Servers: []string{g.addr}, Timeout: scaleTimeout}); err != nil {
		return err
	}
	c := &crowd{group: g, sessions: make(map[string]guard.Credentials)}
	if err := c.gather(ctx, from, to); err != nil {
		return err
	}
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	g.session.Close(closing)
	fmt.Println(os.Getpid())
	<-ctx.Done()
	return nil
}
