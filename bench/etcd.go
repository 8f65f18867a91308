package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"zkelectd/internal/test/zkserver"
)

// etcdLock is the lock of etcd with its own command: etcdctl lock NAME COMMAND.
const etcdLock = "bench"

// etcd is an etcd server.
type etcd struct {
	cmd       *exec.Cmd
	dir, addr string
}

// startEtcd starts an etcd server in a new directory, and waits until it answers. It returns nil if etcd is not
// installed.
func startEtcd(ctx context.Context) (*etcd, error) {
	for _, name := range []string{"etcd", "etcdctl"} {
		if _, err := exec.LookPath(name); err != nil {
			fmt.Fprintf(os.Stderr, "bench: no comparison with etcdctl lock: %v; scripts/install-etcd.sh installs it\n", err)
			return nil, nil
		}
	}
	ports, err := zkserver.FreePorts(2)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zkelectd-bench-")
	if err != nil {
		return nil, err
	}
	e := &etcd{dir: dir, addr: fmt.Sprintf("http://127.0.0.1:%d", ports[0])}
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	e.cmd = exec.Command("etcd", "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
		"--listen-client-urls", e.addr, "--advertise-client-urls", e.addr,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err = e.cmd.Start(); err == nil {
		err = e.answers(ctx)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// answers waits until the server answers.
func (e *etcd) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := e.members(ctx); err == nil {
			return nil
		}
		if waitFor(ctx, 100*time.Millisecond) != nil {
			return errors.New("etcd has not answered within a minute")
		}
	}
}

func (e *etcd) close() {
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

// spawn starts a member that runs the command while it has the lock. Its lease is as long as the sessions of the
// others.
func (e *etcd) spawn(command []string) (*exec.Cmd, error) {
	ttl := fmt.Sprint("--ttl=", int(plainLockTimeout.Seconds()))
	cmd := e.ctl(context.Background(), append([]string{"lock", ttl, etcdLock, "--"}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, cmd.Start()
}

func (e *etcd) ctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "etcdctl", append([]string{"--endpoints=" + e.addr}, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	return cmd
}
