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

// peer is the process that listens at the socket, as the kernel names it.
type peer struct {
	conn     net.Conn
	pid      int
	uid, gid int
	pidfd    int // holds the pid for as long as it is open
}

// dial connects to a socket, and makes sure that its listener is the user to whom the directory was given.
func dial(ctx context.Context, socket string) (*peer, error) {
	conn, owner, err := connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, pidfd: -1}
	if err := p.identify(); err != nil {
		p.close()
		return nil, err
	}
	switch {
	case p.pid <= 1:
		err = fmt.Errorf("process %d is no zkelectd", p.pid)
	case p.uid != owner:
		err = fmt.Errorf("process %d runs as user %d, and %s belongs to user %d", p.pid, p.uid, filepath.Dir(socket), owner)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// connect opens nothing but with O_PATH: there may be a FIFO, and opening that would block.
func connect(ctx context.Context, socket string) (conn net.Conn, owner int, err error) {
	dir, err := unix.Open(filepath.Dir(socket), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, absent(socket, err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(socket), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, absent(socket, err)
	}
	defer unix.Close(fd)
	var parent, own unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &parent), unix.Fstat(fd, &own)); err != nil {
		return nil, 0, err
	}
	if own.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, 0, fmt.Errorf("%s is no socket (mode %#o): remove it", socket, own.Mode)
	}
	conn, err = (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd)) // the file that was checked, and no other
	if err != nil {
		return nil, 0, absent(socket, errors.Unwrap(err))
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	return conn, int(parent.Uid), err
}

func absent(socket string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: nobody answers at %s: %w", ErrNotLeading, socket, err)
	}
	return fmt.Errorf("cannot reach zkelectd at %s: %w", socket, err)
}

// identify asks the kernel which process listens.
func (p *peer) identify() error {
	raw, err := p.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr, fdErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		p.pidfd, fdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil || credErr != nil {
		return fmt.Errorf("the listening process cannot be read: %w", errors.Join(err, credErr))
	}
	p.pid, p.uid, p.gid = int(cred.Pid), int(cred.Uid), int(cred.Gid)
	if fdErr != nil {
		p.pidfd = -1
	}
	if errors.Is(fdErr, unix.ENOPROTOOPT) && p.pid > 1 { // before Linux 6.5
		p.pidfd, fdErr = unix.PidfdOpen(p.pid, 0)
	}
	if fdErr != nil && p.pid > 1 {
		return fmt.Errorf("the listener, process %d, has ended: %w", p.pid, fdErr)
	}
	return nil
}

func (p *peer) close() {
	p.conn.Close()
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

// check makes sure that the answer comes from a daemon of this program, with a guard of this program that is alive.
func (p *peer) check(a Answer) error {
	if a.Daemon.Pid != p.pid {
		return fmt.Errorf("process %d answers for process %d", p.pid, a.Daemon.Pid)
	}
	if a.Guard.Pid <= 1 {
		return fmt.Errorf("process %d is no guard", a.Guard.Pid)
	}
	a.Daemon.Role, a.Guard.Role = "daemon", "guard"
	held, err := unix.PidfdOpen(a.Guard.Pid, 0)
	if err != nil {
		return fmt.Errorf("%w: the guard, process %d, has ended: %w", ErrNotLeading, a.Guard.Pid, err)
	}
	defer unix.Close(held)
	if err := errors.Join(a.Guard.Check(0), a.Daemon.Check(a.Guard.Pid)); err != nil {
		return err
	}
	for _, process := range []guard.Process{a.Guard, a.Daemon} {
		if err := errors.Join(checkUser(process.Pid, p.uid), checkProgram(process.Pid)); err != nil {
			return fmt.Errorf("the %s, process %d: %w", process.Role, process.Pid, err)
		}
	}
	// Both are still alive, so all that was read describes them, and not other processes that reuse their pids.
	for _, fd := range []int{p.pidfd, held} {
		if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
			return fmt.Errorf("%w: daemon or guard has ended: %w", ErrNotLeading, err)
		}
	}
	return nil
}

// checkUser returns an error unless all user ids of a process are uid.
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
			return fmt.Errorf("its user ids are %v, and not %d", strings.Fields(ids), uid)
		}
		return nil
	}
	return errors.New("its user cannot be read")
}

const deletedMark = " (deleted)"

// checkProgram makes sure that a process runs the file that this process runs. Or ran: an upgrade of the package replaces
// the file and does not restart the service, so it may be what was in that place before.
func checkProgram(pid int) error {
	const own = "/proc/self/exe"
	other := fmt.Sprintf("/proc/%d/exe", pid)
	mine, err := os.Stat(own)
	if err != nil {
		return err
	}
	info, err := os.Stat(other)
	if err != nil {
		return fmt.Errorf("its program cannot be read: %w", err)
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
	if name == path+deletedMark && replaced(mine, info) {
		return nil
	}
	return fmt.Errorf("it runs %s, and not %s", name, path)
}

// replaced reports whether old may have been in the place of now: it was removed, and could be written by its owner alone.
func replaced(now, old fs.FileInfo) bool {
	a, b := now.Sys().(*syscall.Stat_t), old.Sys().(*syscall.Stat_t)
	return a.Dev == b.Dev && a.Uid == b.Uid && b.Nlink == 0 && old.Mode().Perm()&0o022 == 0
}
