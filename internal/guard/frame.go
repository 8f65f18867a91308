package guard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kind is what a message says.
type kind string

// The messages of the daemon.
const (
	kindStart   kind = "start"   // start the work Spec as number Seq
	kindStop    kind = "stop"    // ask the work to end, kill it after Grace
	kindKill    kind = "kill"    // kill it now
	kindLease   kind = "lease"   // work may go on until At
	kindBeat    kind = "beat"    // the daemon speaks again before At
	kindWaits   kind = "waits"   // the daemon has no session yet, and is alive
	kindNotify  kind = "notify"  // tell the service manager Notify
	kindSession kind = "session" // what to close after the daemon's death
	kindOwe     kind = "owe"     // what to run before that: Undo
	kindConfig  kind = "config"  // what to offer the next daemon: Config
)

// The messages of the guard.
const (
	kindStarted kind = "started" // the work Seq runs as Pid, or not: Error
	kindExited  kind = "exited"  // its main process has ended: Status
	kindDead    kind = "dead"    // no process of it is left
	kindLeased  kind = "leased"  // At is enforced now
	kindKept    kind = "kept"    // who the keeper is: Hold
	kindHeard   kind = "heard"   // the keeper is at it, if it was told to kill
	kindAlarm   kind = "alarm"   // something of the work can't be killed: Error; empty once that is over
)

// message is what passes between the daemon and the guard, and between the guard and its keeper. Times are
// CLOCK_BOOTTIME, which all share.
type message struct {
	Kind         kind          `json:"kind"`
	Seq          int           `json:"seq,omitempty"`
	At           time.Duration `json:"at,omitempty"`
	Grace        time.Duration `json:"grace,omitempty"`
	Spec         *Spec         `json:"spec,omitempty"`
	Session      *Credentials  `json:"session,omitempty"`
	PendingHooks []Spec        `json:"pending_hooks,omitempty"`
	Config       []byte        `json:"config,omitempty"`
	Notify       string        `json:"notify,omitempty"`
	Pid          int           `json:"pid,omitempty"`
	Status       string        `json:"status,omitempty"`
	Output       string        `json:"output,omitempty"`
	Error        string        `json:"error,omitempty"`
	// Dir is the control group that the keeper puts the work into.
	Dir string `json:"dir,omitempty"`
	// Hold says, of work that was started, what holds it.
	Containment *ContainmentRecord `json:"containment,omitempty"`
}

// Credentials are what it takes to close a session from outside.
type Credentials struct {
	Servers  []string      `json:"servers"`
	ID       int64         `json:"id"`
	Password []byte        `json:"password"`
	Timeout  time.Duration `json:"timeout"`
	// File is where they are kept as well, see [SessionFile]; empty for nowhere.
	File string `json:"file,omitempty"`
	// Access is how to reach the servers, and Leave what releases the leadership that is held, to be sent before the session is
	// closed. The guard does not read them.
	Access  json.RawMessage `json:"access,omitempty"`
	Release json.RawMessage `json:"release,omitempty"`
}

// maxFrame bounds a message: an environment and a command line, which the kernel bounds too.
const maxFrame = 8 << 20

func writeFrame(w io.Writer, m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a %s message of %d bytes is too long", m.Kind, len(body))
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

// errNonsense says that the other side speaks another language: it is treated as dead.
var errNonsense = errors.New("unintelligible")

func readFrame(r io.Reader) (message, error) {
	var m message
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return m, fmt.Errorf("%w: a message of %d bytes", errNonsense, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("%w: %v", errNonsense, err) // an EOF within it is not the socket's
	}
	return m, nil
}

// socketpair makes the two ends. Neither survives an exec unless it is handed over.
func socketpair() (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "daemon"), os.NewFile(uintptr(fds[1]), "guard"), nil
}

// shutdown tells the other side that nothing more comes.
func shutdown(socket *os.File) {
	if raw, err := socket.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// instant writes what there is room for, and fails with the rest.
type instant struct{ *os.File }

func (i instant) Write(data []byte) (n int, err error) {
	raw, err := i.SyscallConn()
	if err != nil {
		return 0, err
	}
	if late := raw.Write(func(fd uintptr) bool {
		n, err = unix.Write(int(fd), data)
		return true // as it is: no waiting for room
	}); late != nil {
		return 0, late
	}
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return max(0, n), err
}
