package guard

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// shrink gives back what starting up has taken: free memory, and the pages of the program itself. The guard needs few of them, and they
// come back from the page cache when it does. Only what is mapped unwritable is: the rest has content of its own.
func shrink() {
	debug.FreeOSMemory()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for s := bufio.NewScanner(maps); s.Scan(); {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			continue
		}
		if strings.Contains(mode, "w") || !strings.HasSuffix(s.Text(), " "+program) {
			continue
		}
		// A failure costs memory only.
		unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}
