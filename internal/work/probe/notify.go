package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"zkelectd/internal/cluster"
)

// Socket receives notifications with the protocol of sd_notify(3). It must be created before the child starts, which
// finds it with the environment variable NOTIFY_SOCKET. It is in the abstract namespace, so that a daemon that is
// killed leaves no file behind. The kernel reports the sender of each notification.
type Socket struct {
	name  string
	conn  *net.UnixConn
	group chan int
	once  sync.Once // for the send on group
	value string    // the last one before READY=1; nobody reads it before ready is closed
	ready chan struct{}
	done  chan struct{}
}

// valueKey is what work sends for a value to publish with its leadership.
const valueKey = "X_ZKELECTD_VALUE"

// Notified has what is called with the notifications of work. Each may be nil.
type Notified struct {
	Status       func(text string)  // for each STATUS=
	PublishValue func(value string) // for each value after READY=1
}

// ListenNotify opens a socket. Notifications are read after [Socket.Expect]. The caller must call Close.
func ListenNotify(to Notified) (*Socket, error) {
	name := fmt.Sprintf("@zkelectd-notify-%d-%016x", os.Getpid(), rand.Uint64())
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("cannot open a notify socket: %w", err)
	}
	s := &Socket{name: name, conn: conn, group: make(chan int, 1), ready: make(chan struct{}), done: make(chan struct{})}
	if err := s.requestCredentials(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot request credentials on the notify socket: %w", err)
	}
	go s.receive(to)
	return s, nil
}

func (s *Socket) requestCredentials() error {
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

// Path returns the value for NOTIFY_SOCKET.
func (s *Socket) Path() string { return s.name }

// Expect sets the process group whose notifications are accepted. It is called once. Without a socket it does nothing.
func (s *Socket) Expect(group int) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.group <- group
		close(s.group)
	})
}

// receive ends when the socket is closed.
func (s *Socket) receive(to Notified) {
	defer close(s.done)
	expected, ok := <-s.group // the kernel keeps what arrives before
	if !ok {
		return
	}
	data, control := make([]byte, 4096), make([]byte, 128)
	var once sync.Once
	for {
		n, nc, _, _, err := s.conn.ReadMsgUnix(data, control)
		if err != nil {
			return
		}
		cred, received := parseControl(control[:nc])
		for _, fd := range received {
			syscall.Close(fd)
		}
		if cred == nil || !isMember(cred, expected) {
			continue
		}
		note := parseNotification(string(data[:n]))
		select {
		case <-s.ready:
			if note.value != nil && to.PublishValue != nil {
				to.PublishValue(*note.value)
			}
		default:
			s.value = *cmp.Or(note.value, &s.value)
		}
		if note.ready {
			once.Do(func() { close(s.ready) })
		}
		for _, text := range note.texts {
			if to.Status != nil {
				to.Status(text)
			}
		}
	}
}

// notification is what one says: READY=1, the texts of STATUS=, and the value, cut to [cluster.MaxValue]; nil if
// there is none.
type notification struct {
	ready bool
	texts []string
	value *string
}

func parseNotification(message string) (n notification) {
	for line := range strings.SplitSeq(message, "\n") {
		key, value, _ := strings.Cut(line, "=")
		switch {
		case key == "READY" && value == "1":
			n.ready = true
		case key == "STATUS":
			n.texts = append(n.texts, value)
		case key == valueKey:
			n.value = new(strings.ToValidUTF8(value[:min(len(value), cluster.MaxValue)], ""))
		}
	}
	return n
}

// isMember reports whether the sender belongs to the process group. A sender that has exited already, such as
// systemd-notify in a script, is accepted if it ran as the user of this process.
func isMember(cred *syscall.Ucred, group int) bool {
	actual, err := syscall.Getpgid(int(cred.Pid))
	if errors.Is(err, syscall.ESRCH) {
		return int(cred.Uid) == os.Getuid()
	}
	return err == nil && actual == group
}

// parseControl returns the credentials of the sender, nil if there are none, and the descriptors that came with the
// message. Any process on this host can send some, and they must be closed: systemd-notify sends a pipe with BARRIER=1,
// and waits until that is closed. The kernel closes those for which control has no room.
func parseControl(control []byte) (cred *syscall.Ucred, received []int) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, nil
	}
	for _, m := range messages {
		if c, err := syscall.ParseUnixCredentials(&m); err == nil {
			cred = c
		} else if len(m.Data)%4 == 0 { // else ParseUnixRights would panic
			fds, _ := syscall.ParseUnixRights(&m)
			received = append(received, fds...)
		}
	}
	return cred, received
}

// Wait waits for READY=1, and returns an error if ctx ends before.
func (s *Socket) Wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return errors.New("received no READY=1")
	}
}

// Value returns what the work has sent to publish with its leadership, before or with READY=1. It may only be called
// after [Socket.Wait] has succeeded.
func (s *Socket) Value() string { return s.value }

// Close removes the socket, if there is one.
func (s *Socket) Close() {
	if s == nil {
		return
	}
	s.conn.Close()
	s.once.Do(func() { close(s.group) })
	<-s.done
}
