package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// etcdLock is the lock of etcd with its own command: etcdctl lock NAME COMMAND.
const etcdLock = "bench"

// etcd is a server of one's own.
type etcd struct {
	cmd       *exec.Cmd
	dir, addr string
}

// startEtcd starts an etcd server in a new directory, and waits until it answers. It needs the programs etcd and etcdctl.
func startEtcd(ctx context.Context) (*etcd, error) {
	for _, name := range []string{"etcd", "etcdctl"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%w; on Debian: apt-get install etcd-server etcd-client", err)
		}
	}
	client, err := freeAddr()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zkelectd-bench-etcd-")
	if err != nil {
		return nil, err
	}
	e := &etcd{dir: dir, addr: client}
	e.cmd = exec.Command("etcd", "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		return e, err
	}
	return e, e.answers(ctx)
}

// freeAddr returns an address of this host at which nobody listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// answers waits until the server answers.
func (e *etcd) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := e.members(ctx); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("etcd has not answered within a minute")
		}
	}
}

func (e *etcd) stop() {
	if e == nil {
		return
	}
	if e.cmd.Process != nil {
		e.cmd.Process.Kill()
		e.cmd.Wait()
	}
	os.RemoveAll(e.dir)
}

// members returns how many have or await the lock.
func (e *etcd) members(ctx context.Context) (int, error) {
	out, err := e.ctl(ctx, "get", "--prefix", "--keys-only", etcdLock+"/").Output()
	return len(bytes.Fields(out)), err
}

// spawn starts a member that runs the command while it has the lock. Its lease is as long as the sessions of the others.
func (e *etcd) spawn(ctx context.Context, command []string) (*exec.Cmd, error) {
	ttl := fmt.Sprint("--ttl=", int(plainLockTimeout.Seconds()))
	cmd := e.ctl(ctx, append([]string{"lock", ttl, etcdLock, "--"}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}

func (e *etcd) ctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "etcdctl", append([]string{"--endpoints=http://" + e.addr}, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	return cmd
}
