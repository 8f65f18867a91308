package harden

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is one line of /proc/self/maps.
type mapping struct {
	from, to uintptr
	file     bool // backed by a file
	writable bool
}

// mappings returns the parts of this process's address space that can be locked.
func mappings() ([]mapping, error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var all []mapping
	s := bufio.NewScanner(maps)
	for s.Scan() {
		// from-to mode offset device inode name
		fields := strings.Fields(s.Text())
		if len(fields) < 5 || len(fields) > 5 && strings.HasPrefix(fields[5], "[v") { // vdso, vvar, vsyscall
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.from, &m.to); err != nil {
			return nil, fmt.Errorf("/proc/self/maps: %q: %w", s.Text(), err)
		}
		if fields[1][0] != 'r' {
			continue
		}
		m.file, m.writable = fields[4] != "0", fields[1][1] == 'w'
		all = append(all, m)
	}
	return all, s.Err()
}

// lockProgram reads all of the program, and of its libraries if it has any, into memory and locks it.
func lockProgram() error {
	all, err := mappings()
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.file {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MLOCK, m.from, m.to-m.from, 0); errno != 0 {
			return fmt.Errorf("cannot lock the program in memory: %w", os.NewSyscallError("mlock", errno))
		}
	}
	return nil
}

// reserve is how much of the limit has to remain for memory other than the program.
const reserve = 4 << 20

// fits reports whether the limit has room for the program as a whole, and for the memory it needs.
func fits() bool {
	var limit unix.Rlimit
	all, err := mappings()
	if err != nil || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return false
	}
	need := uint64(reserve)
	for _, m := range all {
		if m.file {
			need += uint64(m.to - m.from)
		}
	}
	return need <= limit.Cur
}

// dropProgram releases the pages of the program that have never been written to, not even before they were made
// read-only. They are read from the page cache again.
func dropProgram() {
	all, _ := mappings() // an error only means that more pages stay resident
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return
	}
	defer pagemap.Close()
	for _, m := range all {
		if !m.file || m.writable {
			continue
		}
		if written, err := matching(pagemap, m,
			func(entry uint64) bool { return entry&pagePresent != 0 && entry&pageOfFile == 0 }); err == nil &&
			len(written) == 0 {
			unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		}
	}
}

// lockTouched locks the pages that are resident, those of files first: without swap space only these can be lost.
func lockTouched(mode string) error {
	all, err := mappings()
	if err != nil {
		return err
	}
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return fmt.Errorf("cannot determine which pages to lock: %w", err)
	}
	defer pagemap.Close()
	var locked, left uintptr
	var refused error
	for _, files := range []bool{true, false} {
		for _, m := range all {
			if m.file != files || files && mode == modeProgram {
				continue
			}
			runs, err := matching(pagemap, m, func(entry uint64) bool { return entry&pagePresent != 0 })
			if err != nil {
				return fmt.Errorf("cannot determine which pages to lock: %w", err)
			}
			for _, r := range runs {
				if _, _, errno := unix.Syscall(unix.SYS_MLOCK2, r.from, r.to-r.from, unix.MLOCK_ONFAULT); errno != 0 {
					refused = os.NewSyscallError("mlock2", errno)
					left += r.to - r.from
					continue
				}
				locked += r.to - r.from
			}
		}
	}
	if mode == modeProgram && refused == nil {
		return nil
	}
	return limited(locked, left, refused)
}

// limited returns an error that explains what the limit prevents and how to lift it.
func limited(locked, left uintptr, refused error) error {
	limit := "RLIMIT_MEMLOCK"
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil {
		limit = fmt.Sprintf("RLIMIT_MEMLOCK (%d bytes)", l.Cur)
	}
	err := fmt.Errorf("only %d bytes are locked in memory because of %s, so a stalled disk may delay a kill: "+
		"set LimitMEMLOCK=infinity in the unit, 'ulimit -l unlimited', or --ulimit memlock=-1 or --cap-add IPC_LOCK "+
		"for a container", locked, limit)
	if refused != nil {
		err = fmt.Errorf("%w (%w with %d bytes to go)", err, refused, left)
	}
	return err
}

// Bits of /proc/self/pagemap.
const (
	pagePresent = 1 << 63
	pageOfFile  = 1 << 61
)

// matching returns the runs of pages of m whose pagemap entries match.
func matching(pagemap *os.File, m mapping, match func(entry uint64) bool) ([]mapping, error) {
	const entry, batch = 8, 4096
	page := uintptr(os.Getpagesize())
	var runs []mapping
	buf := make([]byte, batch*entry)
	for at := m.from; at < m.to; {
		n := min(batch, (m.to-at)/page)
		if _, err := pagemap.ReadAt(buf[:n*entry], int64(at/page*entry)); err != nil {
			return nil, err
		}
		for i := range n {
			if !match(binary.NativeEndian.Uint64(buf[i*entry:])) {
				continue
			}
			from := at + i*page
			if last := len(runs) - 1; last >= 0 && runs[last].to == from {
				runs[last].to += page
			} else {
				runs = append(runs, mapping{from: from, to: from + page})
			}
		}
		at += n * page
	}
	return runs, nil
}
