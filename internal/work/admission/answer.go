// Package admission lets a leader-only systemd unit start on the host that leads, and nowhere else.
//
// While its host leads, the daemon serves an [Answer] on a socket: which unit may run, its guard, and its fencing
// token. When the unit starts, 'zkelectd admit' runs as root and calls [Admit]. Admit asks the kernel which process
// answers, writes the unit's environment file, and grants the guard the right to kill the unit's control group.
//
// Admit does not trust the daemon's user, who can replace the socket by anything. It opens no file there, limits and
// checks what it reads, and has a timeout, as systemd waits for it. What that user can do is start and stop the unit.
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
	"zkelectd/internal/work/workenv"
)

// Answer is what the daemon serves while the unit may run.
type Answer struct {
	Version int `json:"v"`
	// Group is the unit's control group, which the guard kills when the lease ends.
	Group   string          `json:"group"`
	Guard   guard.Process   `json:"guard"`
	Daemon  guard.Process   `json:"daemon"`
	Fencing workenv.Fencing `json:"fencing"`
}

const (
	version   = 1
	maxAnswer = 16 << 10
)

// Server serves an [Answer] until it is closed.
type Server struct {
	listener net.Listener
	done     chan struct{}
	close    func()
}

// Serve serves a at the socket path. It replaces a socket that a dead daemon has left there.
func Serve(path string, a Answer) (*Server, error) {
	a.Version = version
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the socket for the unit: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot create the socket for the unit: %w", err)
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
	answerTimeout    = time.Second // for a client that does not read
	acceptRetryDelay = 20 * time.Millisecond
)

// serve runs until the listener is closed.
func (s *Server) serve(data []byte) {
	defer close(s.done)
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptRetryDelay) // perhaps there was no free file descriptor
			continue
		}
		if err := conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err == nil {
			conn.Write(data)
		}
		conn.Close()
	}
}

// Close stops serving and returns once no answer is sent any more. It may be called more than once.
func (s *Server) Close() { s.close() }

// readAnswer reads an answer from a process that is not trusted.
func readAnswer(r io.Reader) (Answer, error) {
	var a Answer
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case err != nil:
		return a, err
	case len(data) > maxAnswer:
		return a, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("admit does not understand its answer: %w", err)
	}
	if a.Version != version {
		return a, fmt.Errorf("its answer has version %d, but this program needs version %d: restart zkelectd "+
			"after an upgrade", a.Version, version)
	}
	return a, nil
}
