// Package admission lets a leader-only unit of systemd's start on the host that leads, and nowhere else.
//
// The daemon answers on a socket: for which unit, under which guard, with which fencing token. As the unit starts, 'zkelectd
// admit' reads that as root. It asks the kernel which process answers, makes the unit's environment file, and entrusts the
// unit's control group to the guard.
//
// Root must not trust the daemon's user, who can put anything in the place of the socket. So nothing there is opened, what is
// read is bounded and checked, and there is a time limit, since systemd waits. That user can still start and stop the unit,
// as it has to.
package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/workenv"
)

// Answer is what the daemon says while the unit may run.
type Answer struct {
	Version int `json:"v"`
	// Group is the unit's control group, which the guard will kill.
	Group   string          `json:"group"`
	Guard   guard.Process   `json:"guard"`
	Daemon  guard.Process   `json:"daemon"`
	Fencing workenv.Fencing `json:"fencing"`
}

const (
	version   = 1
	maxAnswer = 16 << 10
)

// Server answers until it is closed.
type Server struct {
	listener net.Listener
	done     chan struct{}
	close    func()
}

// Serve answers at path, where only a socket of a dead daemon may be left.
func Serve(path string, a Answer) (*Server, error) {
	a.Version = version
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what is in the way of the socket for the unit cannot be removed: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot make the socket for the unit: %w", err)
	}
	s := &Server{listener: l, done: make(chan struct{})}
	s.close = sync.OnceFunc(func() {
		l.Close()
		<-s.done
	})
	go s.serve(data)
	return s, nil
}

const (
	answerLimit = time.Second // for a client that does not read
	acceptPause = 20 * time.Millisecond
)

// serve ends with the listener.
func (s *Server) serve(data []byte) {
	defer close(s.done)
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // there may be no descriptor for it
			continue
		}
		if err := conn.SetWriteDeadline(time.Now().Add(answerLimit)); err == nil {
			conn.Write(data)
		}
		conn.Close()
	}
}

// Close returns when nobody is answered any more. It may be called more than once.
func (s *Server) Close() { s.close() }

// readAnswer reads what another process says, which may be anything.
func readAnswer(r io.Reader) (Answer, error) {
	var a Answer
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case err != nil:
		return a, err
	case len(data) > maxAnswer:
		return a, fmt.Errorf("it says more than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("it says nothing that 'zkelectd admit' understands: %w", err)
	}
	if a.Version != version {
		return a, fmt.Errorf("it speaks version %d, and this program version %d: restart zkelectd after an upgrade", a.Version, version)
	}
	return a, nil
}
