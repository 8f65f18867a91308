package guard

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// board is memory that the guard shares with its daemons and keepers. The daemon writes there how its deadlines are extended, and guard
// and keeper look only when a deadline that they know is reached: so a renewal wakes neither of them. Everything else is a message: the
// first lease of work, one that ends earlier, and what ends it at once. It is one place for a deadline whether it was read or not, so
// there is no older one that could come after a newer one.
//
// The memory exists before any work starts and cannot shrink, so that reading it needs nothing and cannot fail. A nil board has no
// slots: then all is said in messages.
type board struct{ words []atomic.Int64 }

// boardFD is the file descriptor at which a daemon finds the board, and keeperBoardFD the one for a keeper.
const (
	boardFD       = SocketFD + 4
	keeperBoardFD = 5
)

// The slots of a board. A slot is used for one leadership, or for the heartbeat of one daemon, and never again. Slot 0 stands for none,
// and when all are used up, the next ones have none.
const (
	boardSlots = 1 << 12
	boardSize  = 2 * boardSlots * 8
)

// newBoard returns a board and the file by which other processes can open it.
func newBoard() (*board, *os.File, error) {
	fd, err := unix.MemfdCreate("zkelectd-leases", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "leases")
	err = unix.Ftruncate(fd, boardSize)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot share memory: %w", err), file.Close())
	}
	b, err := openBoard(fd, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	for i := range b.words {
		b.words[i].Store(0) // now its pages exist
	}
	return b, file, nil
}

// openBoard maps the board with a file descriptor, which may be closed then, and touches it.
func openBoard(fd, protection int) (*board, error) {
	data, err := unix.Mmap(fd, 0, boardSize, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := &board{unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&data[0])), 2*boardSlots)}
	b.touch()
	return b, nil
}

// touch reads all of the board, so that its pages are present.
func (b *board) touch() {
	if b == nil {
		return
	}
	for i := range b.words {
		b.words[i].Load()
	}
}

// inheritBoard opens the board that the guard has passed to this process; nil if it has passed none. Then the file descriptor may be that
// of another file. What can shrink is no board: reading memory that is gone would end this process.
func inheritBoard(fd, protection int) (*board, error) {
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, nil
	}
	unix.CloseOnExec(fd)
	b, err := openBoard(fd, protection)
	if err != nil {
		return nil, fmt.Errorf("cannot open the memory with the leases: %w", err)
	}
	return b, unix.Close(fd)
}

// valid reports whether there is such a slot.
func (b *board) valid(slot int) bool { return b != nil && slot > 0 && slot < boardSlots }

// deadline returns what the daemon has written last; 0 before that, or without a slot.
func (b *board) deadline(slot int) time.Duration {
	if !b.valid(slot) {
		return 0
	}
	return time.Duration(b.words[slot].Load())
}

func (b *board) setDeadline(slot int, at time.Duration) {
	if b.valid(slot) {
		b.words[slot].Store(int64(at))
	}
}

// confirmed returns the deadline that the guard enforces; 0 before that, or without a slot.
func (b *board) confirmed(slot int) time.Duration {
	if !b.valid(slot) {
		return 0
	}
	return time.Duration(b.words[boardSlots+slot].Load())
}

// reset makes a slot usable that no work uses yet: a daemon that has died may have written there.
func (b *board) reset(slot int) {
	b.setDeadline(slot, 0)
	b.confirm(slot, 0)
}

func (b *board) confirm(slot int, at time.Duration) {
	if b.valid(slot) {
		b.words[boardSlots+slot].Store(int64(at))
	}
}

// extended returns the deadline of a slot if it is later than at, and at otherwise. A deadline of 0, for none, is not extended: only a
// message does that.
func (b *board) extended(slot int, at time.Duration) time.Duration {
	if at == 0 || !b.valid(slot) {
		return at
	}
	return max(at, b.deadline(slot))
}
