package oneshot

import (
	"encoding/json"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerUser returns the user id of the process at the other end of a socket.
func peerUser(conn *net.UnixConn) (user int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", failed)
	}
	return int(cred.Uid), nil
}

// sendWith sends a message, and an open file with it unless that is nil.
func sendWith(conn *net.UnixConn, m message, file *os.File) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(append(line, '\n'), rights, nil)
	return err
}

// fileReader reads from a socket, and keeps the file that is sent with the data.
type fileReader struct {
	conn *net.UnixConn
	file *os.File // nil if none was sent
}

func (r *fileReader) Read(p []byte) (int, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, length, _, _, err := r.conn.ReadMsgUnix(p, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return n, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:length])
	if err != nil {
		return n, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return n, err
		}
		for _, fd := range fds {
			r.file = os.NewFile(uintptr(fd), "the standard input of the job")
		}
	}
	return n, nil
}
