package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// plainLock is the yardstick: what most people write who need one leader. It takes the lock of go-zookeeper, where each
// waiter watches the one before it, and runs a command while it holds it. Nothing ends the command if this process dies
// or loses its session.
const (
	plainLockServer  = "BENCH_PLAIN_LOCK" // the variable with the server's address; it makes this program a plainLock
	plainLockTimeout = 6 * time.Second    // of its session
	plainLockPath    = "/plain-lock"
)

// silent discards what go-zookeeper logs.
type silent struct{}

func (silent) Printf(string, ...any) {}

// runPlainLock waits for the lock, runs the command, and gives the lock back after the command has ended.
func runPlainLock(server string, command []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() { // the benchmark has ended
		io.Copy(io.Discard, os.Stdin)
		stop <- syscall.SIGTERM
	}()
	conn, _, err := zk.Connect([]string{server}, plainLockTimeout, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	lock := zk.NewLock(conn, plainLockPath, zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- lock.Lock() }()
	select {
	case err := <-locked:
		if err != nil {
			return err
		}
	case <-stop: // it still waits
		return nil
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, lock.Unlock())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-stop:
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-ended
	case err = <-ended:
	}
	return errors.Join(err, lock.Unlock())
}

// spawnLock starts a plainLock for a command.
func spawnLock(server string, command []string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", command...)
	cmd.Env = append(os.Environ(), plainLockServer+"="+server)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // ends with this process
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the plain lock: %w", err)
	}
	return cmd, nil
}
