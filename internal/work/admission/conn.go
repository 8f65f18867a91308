package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"zkelectd/internal/guard"
)

// daemonConn is a connection to the process that listens at the socket, with that process's identity according to the
// kernel.
type daemonConn struct {
	conn     net.Conn
	pid      int
	uid, gid int
	pidfd    int // keeps the process identifiable even if its pid is reused
}

// dial connects to a socket and checks that its listener runs as the owner of the directory.
func dial(ctx context.Context, socket string) (*daemonConn, error) {
	conn, owner, err := connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	c := &daemonConn{conn: conn, pidfd: -1}
	if err := c.identify(); err != nil {
		c.close()
		return nil, err
	}
	switch {
	case c.pid <= 1:
		err = fmt.Errorf("process %d cannot be zkelectd", c.pid)
	case c.uid != owner:
		err = fmt.Errorf("process %d runs as user %d, but %s belongs to user %d", c.pid, c.uid, filepath.Dir(socket), owner)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// connect connects to a socket and returns the owner of its directory. It opens files with O_PATH only: if socket is a
// FIFO, another way of opening it would block.
func connect(ctx context.Context, socket string) (conn net.Conn, owner int, err error) {
	dir, err := unix.Open(filepath.Dir(socket), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, dialError(socket, err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(socket), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, dialError(socket, err)
	}
	defer unix.Close(fd)
	var parent, own unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &parent), unix.Fstat(fd, &own)); err != nil {
		return nil, 0, err
	}
	if own.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, 0, fmt.Errorf("%s is not a socket (mode %#o): remove it", socket, own.Mode)
	}
	// exactly the file that was checked
	conn, err = (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, 0, dialError(socket, errors.Unwrap(err))
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	return conn, int(parent.Uid), err
}

// dialError explains why no connection to the socket was possible.
func dialError(socket string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: nothing listens at %s: %w", ErrNotLeading, socket, err)
	}
	return fmt.Errorf("cannot reach zkelectd at %s: %w", socket, err)
}

// identify asks the kernel which process listens at the socket.
func (c *daemonConn) identify() error {
	raw, err := c.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr, fdErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		c.pidfd, fdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil || credErr != nil {
		return fmt.Errorf("cannot determine the listening process: %w", errors.Join(err, credErr))
	}
	c.pid, c.uid, c.gid = int(cred.Pid), int(cred.Uid), int(cred.Gid)
	if fdErr != nil {
		c.pidfd = -1
	}
	if errors.Is(fdErr, unix.ENOPROTOOPT) && c.pid > 1 { // before Linux 6.5
		c.pidfd, fdErr = unix.PidfdOpen(c.pid, 0)
	}
	if fdErr != nil && c.pid > 1 {
		return fmt.Errorf("the listening process %d has ended: %w", c.pid, fdErr)
	}
	return nil
}

func (c *daemonConn) close() {
	c.conn.Close()
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
	}
}

// verify checks that the answer comes from a live daemon that runs this program, and whose parent is a live guard that
// runs it.
func (c *daemonConn) verify(a Answer) error {
	if a.Daemon.Pid != c.pid {
		return fmt.Errorf("process %d answered, but names process %d as the daemon", c.pid, a.Daemon.Pid)
	}
	if a.Guard.Pid <= 1 {
		return fmt.Errorf("process %d cannot be a guard", a.Guard.Pid)
	}
	a.Daemon.Role, a.Guard.Role = "daemon", "guard"
	guardFD, err := unix.PidfdOpen(a.Guard.Pid, 0)
	if err != nil {
		return fmt.Errorf("%w: the guard (process %d) has ended: %w", ErrNotLeading, a.Guard.Pid, err)
	}
	defer unix.Close(guardFD)
	if err := errors.Join(a.Guard.Check(0), a.Daemon.Check(a.Guard.Pid)); err != nil {
		return err
	}
	for _, process := range []guard.Process{a.Guard, a.Daemon} {
		if err := errors.Join(checkUser(process.Pid, c.uid), checkProgram(process.Pid)); err != nil {
			return fmt.Errorf("the %s (process %d): %w", process.Role, process.Pid, err)
		}
	}
	// If both are still alive, what was read by pid describes them, and not processes that have reused their pids.
	for _, fd := range []int{c.pidfd, guardFD} {
		if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
			return fmt.Errorf("%w: the daemon or the guard has ended: %w", ErrNotLeading, err)
		}
	}
	return nil
}

// checkUser returns an error unless all user IDs of a process are uid.
func checkUser(pid, uid int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		ids, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		if slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != strconv.Itoa(uid) }) {
			return fmt.Errorf("its user IDs are %v instead of %d", strings.Fields(ids), uid)
		}
		return nil
	}
	return errors.New("cannot read its user IDs")
}

// deletedSuffix ends the link of /proc/PID/exe once the program file was removed.
const deletedSuffix = " (deleted)"

// checkProgram checks that a process runs the same program file as this process, or the file that was at its path
// before: an upgrade of the package replaces the file but does not restart the service.
func checkProgram(pid int) error {
	const own = "/proc/self/exe"
	other := fmt.Sprintf("/proc/%d/exe", pid)
	mine, err := os.Stat(own)
	if err != nil {
		return err
	}
	info, err := os.Stat(other)
	if err != nil {
		return fmt.Errorf("cannot read its program: %w", err)
	}
	if os.SameFile(mine, info) {
		return nil
	}
	path, err := os.Readlink(own)
	if err != nil {
		return err
	}
	name, err := os.Readlink(other)
	if err != nil {
		return err
	}
	if name == path+deletedSuffix && mayBePredecessor(mine, info) {
		return nil
	}
	return fmt.Errorf("it runs %s instead of %s", name, path)
}

// mayBePredecessor reports whether the program file old may have been replaced by current: old was removed, belongs to
// the same user and file system, and could be written by its owner only.
func mayBePredecessor(current, old fs.FileInfo) bool {
	a, b := current.Sys().(*syscall.Stat_t), old.Sys().(*syscall.Stat_t)
	return a.Dev == b.Dev && a.Uid == b.Uid && b.Nlink == 0 && old.Mode().Perm()&0o022 == 0
}
