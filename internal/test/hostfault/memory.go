package hostfault

import (
	"errors"
	"io"
	"os"
)

// FillMemory uses all memory of the control group of this process except for a little, calls full, and then reads a
// file again and again, so that the kernel reclaims every page of a program that is not locked. It returns only if it
// fails. From full on it allocates nothing: if the kernel kills this process, it may kill another one before it has the
// memory of this one back.
func FillMemory(group ControlGroup, file string, full func()) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var all [][]byte
	buf := make([]byte, 64<<10)
	for {
		cache, used, err := group.memoryUse()
		if err != nil {
			return err
		}
		if cache <= 6<<20 && used >= 95 {
			break
		}
		all = append(all, TouchedMemory(256<<10))
		if _, used, err = group.memoryUse(); err != nil {
			return err
		}
		if used > 90 {
			if err := readStart(f, buf); err != nil {
				return err
			}
		}
	}
	full()
	for {
		if err := readStart(f, buf); err != nil {
			return err
		}
		all[0][0]++
	}
}

// memoryUse returns how many bytes of files the group has in memory, and the percentage of its memory that is in use.
func (g ControlGroup) memoryUse() (cache, percent int64, err error) {
	if cache, err = g.pageCache(); err != nil {
		return 0, 0, err
	}
	used, err := g.Number("memory.usage_in_bytes")
	if err != nil {
		return 0, 0, err
	}
	limit, err := g.Number("memory.limit_in_bytes")
	if err != nil {
		return 0, 0, err
	}
	return cache, 100 * used / limit, nil
}

// readStart reads the first 4 MB of a file.
func readStart(f *os.File, buf []byte) error {
	for at := int64(0); at < 4<<20; at += int64(len(buf)) {
		if _, err := f.ReadAt(buf, at); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}

// TouchedMemory returns memory of which every page is in use.
func TouchedMemory(size int) []byte {
	b := make([]byte, size)
	for i := 0; i < size; i += os.Getpagesize() {
		b[i] = 1
	}
	return b
}
