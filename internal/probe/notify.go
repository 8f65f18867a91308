package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Socket receives notifications by the protocol of sd_notify(3). It must exist before the child starts, which finds it
// by the environment variable NOTIFY_SOCKET.
type Socket struct {
	dir   string
	conn  *net.UnixConn
	ready chan struct{}
	done  chan struct{}

	mu    sync.Mutex
	group int
}

// ListenNotify opens a socket in a private directory. status is called with the text of each STATUS=; it may be nil.
// Close removes the socket.
func ListenNotify(status func(string)) (*Socket, error) {
	dir, err := os.MkdirTemp("", "zkelectd-notify-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("no directory for the notify socket: %w", err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("no notify socket: %w", err)
	}
	s := &Socket{dir: dir, conn: conn, ready: make(chan struct{}), done: make(chan struct{})}
	if err := s.askCredentials(); err != nil {
		conn.Close()
		os.RemoveAll(dir)
		return nil, fmt.Errorf("no credentials on the notify socket: %w", err)
	}
	go s.receive(status)
	return s, nil
}

func (s *Socket) askCredentials() error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var opt error
	err = raw.Control(func(fd uintptr) {
		opt = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	})
	return errors.Join(err, opt)
}

// Path is the value for NOTIFY_SOCKET.
func (s *Socket) Path() string { return filepath.Join(s.dir, "notify") }

// Expect names the process group whose notifications count; those of others are ignored.
func (s *Socket) Expect(group int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group = group
}

func (s *Socket) expected(pid int) bool {
	group, err := syscall.Getpgid(pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.group == 0 || (err == nil && group == s.group)
}

// receive ends when the socket is closed.
func (s *Socket) receive(status func(string)) {
	defer close(s.done)
	data, control := make([]byte, 4096), make([]byte, 128)
	var once sync.Once
	for {
		n, nc, _, _, err := s.conn.ReadMsgUnix(data, control)
		if err != nil {
			return
		}
		if pid, ok := sender(control[:nc]); !ok || !s.expected(pid) {
			continue
		}
		for line := range strings.SplitSeq(string(data[:n]), "\n") {
			key, value, _ := strings.Cut(line, "=")
			switch {
			case key == "READY" && value == "1":
				once.Do(func() { close(s.ready) })
			case key == "STATUS" && status != nil:
				status(value)
			}
		}
	}
}

func sender(control []byte) (pid int, ok bool) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if cred, err := syscall.ParseUnixCredentials(&m); err == nil {
			return int(cred.Pid), true
		}
	}
	return 0, false
}

func (s *Socket) wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return errors.New("no READY=1 was received")
	}
}

// Close closes and removes the socket.
func (s *Socket) Close() {
	s.conn.Close()
	<-s.done
	os.RemoveAll(s.dir)
}
