package guard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kind is the type of a message.
type kind string

// Messages from the daemon to the guard. The guard passes start, stop, kill and lease on to a keeper, with its own
// numbers for the works.
const (
	// there is a new leadership: Leadership, Name, Standby, and its Place on the board
	kindOpen    kind = "open"
	kindAbandon kind = "abandon" // kill the work of Leadership and refuse everything else for it
	kindClose   kind = "close"   // forget Leadership, whose work is dead
	kindPrepare kind = "prepare" // prepare to start the work Spec of Leadership, and number it Seq
	kindStart   kind = "start"   // start the prepared work
	kindStop    kind = "stop"    // ask the work to stop; kill it after Grace
	kindKill    kind = "kill"    // kill the work now
	kindLease   kind = "lease"   // a lease on the board is new, or shorter: read the board now
	// the same for the time by which the daemon sends its next heartbeat; it also feeds the watchdog
	kindHeartbeat kind = "heartbeat"
	// the daemon is alive and handles signals; needed without a session to set a deadline by
	kindAlive        kind = "alive"
	kindNotify       kind = "notify"        // pass Notify on to the service manager
	kindSession      kind = "session"       // the session to close after the daemon's death: Session
	kindRelease      kind = "release"       // the transaction that releases Leadership, to be sent before that: Release
	kindPendingHooks kind = "pending_hooks" // the hooks of Leadership to run before that: PendingHooks
	kindDevice       kind = "device"        // check the watchdog device Device; to the daemon: its state DeviceState
	kindConfig       kind = "config"        // the last good configuration, for the next daemon: Config
)

// Messages from the guard to the daemon, and from the keeper to the guard.
const (
	// to the daemon: how work is contained, and what survives: Containment, Survivors; to a keeper: its number Seq
	kindHello     kind = "hello"
	kindSurvivors kind = "survivors" // the works of earlier daemons that still run: Survivors
	kindPrepared  kind = "prepared"  // the work can be started, see Containment, or it was refused: Error
	kindStarted   kind = "started"   // the work runs as process Pid, or failed to start: Error
	kindKilling   kind = "killing"   // the sender is killing the work
	kindExited    kind = "exited"    // the main process of the work has ended: Status
	kindDead      kind = "dead"      // no process of the work is left: Output
	kindGone      kind = "gone"      // nothing is left of the abandoned Leadership, and its hooks have run
	// the guard enforces the leases on the board; the answer to a lease message
	kindLeaseConfirmed kind = "lease_confirmed"
	kindReady          kind = "ready"      // the keeper has started (keeper to guard only)
	kindUnkillable     kind = "unkillable" // a process of the work cannot be killed: Error; empty once that is resolved
)

// message is exchanged between the daemon and the guard, and between the guard and its keepers. Points in time are
// readings of CLOCK_BOOTTIME, which is the same in all of them.
type message struct {
	Kind         kind               `json:"kind"`
	Seq          int                `json:"seq,omitempty"`
	Leadership   int                `json:"leadership,omitempty"`
	Name         string             `json:"name,omitempty"`
	At           time.Duration      `json:"at,omitempty"`
	Grace        time.Duration      `json:"grace,omitempty"`
	Spec         *Spec              `json:"spec,omitempty"`
	Session      *Credentials       `json:"session,omitempty"`
	Release      json.RawMessage    `json:"release,omitempty"`
	PendingHooks []Spec             `json:"pending_hooks,omitempty"`
	Config       []byte             `json:"config,omitempty"`
	Notify       string             `json:"notify,omitempty"`
	Pid          int                `json:"pid,omitempty"`
	Status       string             `json:"status,omitempty"`
	Output       string             `json:"output,omitempty"`
	Error        string             `json:"error,omitempty"`
	Survivors    []LeadershipRecord `json:"survivors,omitempty"`
	Device       *DeviceSpec        `json:"device,omitempty"`
	DeviceState  *DeviceState       `json:"device_state,omitempty"`
	// Place is the index of the place on the board. A pending hook has none, but a deadline At.
	Place int `json:"place,omitempty"`
	// Standby is set for a leadership that runs promotable work, see [Client.NewStandby].
	Standby bool `json:"standby,omitempty"`
	// Dir is the control group into which the keeper puts the work.
	Dir string `json:"dir,omitempty"`
	// Containment describes how the work is contained.
	Containment *ContainmentRecord `json:"containment,omitempty"`
}

// Spec specifies leader-only work (the child, the pre_start hook, or a systemd unit) or a pending hook. For the former,
// [Leadership.Start] sets Path and StateFile.
type Spec struct {
	// Unit is the unit that systemd runs instead of a program; only Reset matters beside it.
	Unit *Unit `json:"unit,omitempty"`
	// Path is the absolute path of the program and Argv its arguments, with the program name first.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Dir  string   `json:"dir,omitempty"`
	// Env is the complete environment.
	Env []string `json:"env"`
	// StopSignal is the signal that asks the process group to stop; the default of leader-only work is SIGTERM.
	StopSignal syscall.Signal `json:"stop_signal"`
	// Capture keeps the beginning of the output, for an error message, instead of passing it through.
	Capture bool `json:"capture,omitempty"`
	// StateFile is the path of a file that records whether the work runs, for 'zkelectd release'; empty for none.
	StateFile string `json:"state_file,omitempty"`
	// Input is the standard input; the default is none. The guard sets KeepInput by its options.
	Input     []byte `json:"input,omitempty"`
	KeepInput bool   `json:"keep_input,omitempty"`
	// Reset makes the work run only while the watchdog device is armed; nil without a device.
	Reset *ResetSpec `json:"reset,omitempty"`
	// Timeout limits the run time of a pending hook, see [Leadership.SetPendingHooks]; 0 for other work.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Optional marks a pending hook that nothing waits for. The session is closed whether it succeeds or not.
	Optional bool `json:"optional,omitempty"`
}

// Credentials are what another process needs to close a ZooKeeper session.
type Credentials struct {
	Servers  []string      `json:"servers"`
	ID       int64         `json:"id"`
	Password []byte        `json:"password"`
	Timeout  time.Duration `json:"timeout"`
	// File is the path of the [SessionFile] that also holds them; empty for none.
	File string `json:"file,omitempty"`
	// Access holds the settings for connecting to the servers. Releases are the transactions that release the
	// leaderships that are held; each is sent before the session is closed. The guard does not interpret either.
	Access   json.RawMessage   `json:"access,omitempty"`
	Releases []json.RawMessage `json:"releases,omitempty"`
}

// maxFrame limits the size of a message. Its largest parts, an environment and a command line, are limited by the
// kernel, too.
const maxFrame = 8 << 20

func writeFrame(w io.Writer, m message) error {
	frame, err := appendFrame(nil, m)
	if err == nil {
		_, err = w.Write(frame)
	}
	return err
}

// appendFrame appends the encoded message to b.
func appendFrame(b []byte, m message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return b, err
	}
	if len(body) > maxFrame {
		return b, fmt.Errorf("a %s message of %d bytes is too long", m.Kind, len(body))
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...), nil
}

// errProtocol reports that the peer violated the protocol. A daemon that does so is treated as dead.
var errProtocol = errors.New("protocol error")

func readFrame(r io.Reader) (message, error) {
	var m message
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return m, fmt.Errorf("%w: a message of %d bytes", errProtocol, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(&m)
	if errors.Is(err, io.EOF) {
		err = errors.New("empty message") // io.EOF would mean that the socket was closed
	}
	if err != nil {
		return m, fmt.Errorf("%w: %w", errProtocol, err)
	}
	return m, nil
}

// readFrames passes on the messages of a peer, which from names, until its socket ends.
func readFrames(socket io.Reader, to chan<- incoming, from incoming) {
	for in := bufio.NewReader(socket); ; {
		from.msg, from.err = readFrame(in)
		to <- from
		if from.err != nil {
			return
		}
	}
}

// socketpair returns two connected sockets. Both are close-on-exec: a child gets one only if it is passed explicitly.
func socketpair() (near *socket, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	far = os.NewFile(uintptr(fds[1]), "guard")
	if near, err = newSocket(fds[0], "daemon"); err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return near, far, nil
}

// closeWrite closes the sending direction of a socket, which the peer sees as end of file.
func closeWrite(socket syscall.Conn) {
	if raw, err := socket.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}
