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

// board is memory that the guard shares with its daemons and keepers, and the only way by which deadlines travel: the
// daemon writes them, and guard and keeper read them when one that they have read is reached. So a renewal wakes
// neither of them. A message is needed only if they have to look earlier than that; it does not contain the deadline.
//
// Each deadline has one word, and the last write wins: a late message cannot undo it. The memory exists before any work
// starts and cannot shrink, so that reading it needs nothing and cannot fail.
type board struct{ words []atomic.Uint64 }

// boardFD is the file descriptor at which a daemon finds the board, and keeperBoardFD the one for a keeper.
const (
	boardFD       = SocketFD + 4
	keeperBoardFD = 5
)

// boardPlaces is the number of places on the board. The first one is for the daemon's heartbeat, the others are for
// leaderships.
const boardPlaces = 1 + maxLeaderships

// The words on the board: for each place what the daemon has written, and what the guard enforces; then the id of the
// last leadership of earlier daemons, after which a daemon counts on.
const (
	enforcedWords  = boardPlaces
	lastIDWord     = 2 * boardPlaces
	boardWords     = lastIDWord + 1
	boardSize      = 8 * boardWords
	deadlineBits   = 50 // of a word, in microseconds: 35 years since the host was started
	deadlineMask   = 1<<deadlineBits - 1
	maxGenerations = 1 << (64 - deadlineBits)
)

// Forever is the lease of promotable work that has not been promoted, or has been demoted: it may run on any host, at
// any time.
const Forever = deadlineMask * time.Microsecond

// newBoard returns a board and the file by which other processes can open it.
func newBoard() (*board, *os.File, error) {
	fd, err := unix.MemfdCreate("zkelectd-leases", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot share memory for the leases: %w", os.NewSyscallError("memfd_create", err))
	}
	file := os.NewFile(uintptr(fd), "leases")
	err = unix.Ftruncate(fd, boardSize)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot share memory for the leases: %w", err), file.Close())
	}
	b, err := openBoard(fd, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	b.reset(0) // now its pages exist
	return b, file, nil
}

// openBoard maps the board with a file descriptor, which may be closed then, and touches it.
func openBoard(fd, protection int) (*board, error) {
	data, err := unix.Mmap(fd, 0, boardSize, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot open the memory with the leases: %w", os.NewSyscallError("mmap", err))
	}
	b := &board{unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&data[0])), boardWords)}
	b.touch()
	return b, nil
}

// touch reads all of the board, so that its pages are present.
func (b *board) touch() {
	for i := range b.words {
		b.words[i].Load()
	}
}

// inheritBoard opens the board that the guard has passed to this process. What can shrink is no board: reading memory
// that is gone would end this process.
func inheritBoard(fd, protection int) (*board, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil && seals&unix.F_SEAL_SHRINK == 0 {
		err = errors.New("it can shrink")
	}
	if err != nil {
		return nil, fmt.Errorf("the memory with the leases is not at file descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	b, err := openBoard(fd, protection)
	if err != nil {
		return nil, err
	}
	return b, unix.Close(fd)
}

// reset clears the board for the next daemon, whose first leadership has the id after lastID.
func (b *board) reset(lastID int) {
	for i := range b.words {
		b.words[i].Store(0)
	}
	b.words[lastIDWord].Store(uint64(lastID))
}

// lastID returns the id of the last leadership of earlier daemons.
func (b *board) lastID() int { return int(b.words[lastIDWord].Load()) }

// heartbeat returns the place of the daemon's heartbeat.
func (b *board) heartbeat() place { return b.place(0, 0) }

// place returns the place with an index for a leadership.
func (b *board) place(index, leadership int) place {
	return place{b, index, uint64(leadership % maxGenerations)}
}

// place is the part of the board that belongs to one leadership, or to the heartbeat. When the leadership is over,
// another one uses its words. They contain the generation of their user, so that no deadline of one leadership ever
// counts for another.
type place struct {
	board      *board
	index      int
	generation uint64
}

// deadline returns what the daemon has written last; 0 for none.
func (p place) deadline() time.Duration { return p.load(p.index) }

func (p place) setDeadline(at time.Duration) { p.store(p.index, at) }

// enforced returns the deadline that the guard enforces; 0 for none.
func (p place) enforced() time.Duration { return p.load(enforcedWords + p.index) }

func (p place) enforce(at time.Duration) { p.store(enforcedWords+p.index, at) }

func (p place) load(word int) time.Duration {
	value := p.board.words[word].Load()
	if value>>deadlineBits != p.generation {
		return 0
	}
	return time.Duration(value&deadlineMask) * time.Microsecond
}

// store rounds down: no deadline becomes later.
func (p place) store(word int, at time.Duration) {
	value := min(uint64(max(0, at)/time.Microsecond), deadlineMask)
	p.board.words[word].Store(p.generation<<deadlineBits | value)
}
