package cli

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/procinfo"
)

// localDaemon is the daemon that runs with a configuration file on this host. The kernel says which process that is:
// the one that listens on the daemon's socket. No record in ZooKeeper can make a drill kill another one.
type localDaemon struct{ file string }

// leadingDaemon returns the daemon with a configuration file, or an error unless it leads.
func leadingDaemon(ctx context.Context, s cluster.Snapshot, file string) (localDaemon, error) {
	d := localDaemon{file}
	pid, err := d.pid(ctx)
	if err != nil {
		return d, err
	}
	stat, err := procinfo.ReadStat(pid)
	if err != nil {
		return d, err
	}
	m, found := s.Member(s.Current.Record.Incarnation)
	if !found || !m.Node.Readable() {
		return d, fmt.Errorf("the record of the leader %s cannot be read", s.Current.Record.Node)
	}
	guard, absent, err := guardOf(m.Node.Record)
	switch {
	case err != nil:
		return d, err
	case absent != "":
		return d, fmt.Errorf("%s leads, and this drill runs on its host: %s", m.ID, absent)
	case guard != stat.Parent:
		return d, fmt.Errorf("%s leads with the guard %d, but process %d, the daemon that runs with %s here, has the guard %d",
			m.ID, guard, pid, file, stat.Parent)
	}
	return d, nil
}

// pid returns the process that listens on the daemon's socket.
func (d localDaemon) pid(ctx context.Context) (pid int, err error) {
	err = atDaemon(d.file, func(socket string) error {
		pid, err = listenerOf(ctx, socket)
		if err == nil && pid == 0 {
			err = fmt.Errorf("the process that listens on %s is not visible here: run this in its container", socket)
		}
		return err
	})
	return pid, err
}

// listenerOf returns the process that listens on a socket; 0 if it is in a PID namespace that this process cannot see.
func listenerOf(ctx context.Context, socket string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	peer, err := unix.GetsockoptUcred(int(file.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", err)
	}
	return int(peer.Pid), nil
}

// kill kills the daemon. It is asked for again once the kernel holds the process, in case its pid was given to
// another one.
func (d localDaemon) kill(ctx context.Context) error {
	pid, err := d.pid(ctx)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	again, err := d.pid(ctx)
	if err == nil && again != pid {
		err = fmt.Errorf("the daemon, process %d, has ended meanwhile", pid)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}
