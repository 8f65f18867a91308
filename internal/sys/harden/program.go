package harden

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ReadProgram reads what the kernel reads before it executes a program in a directory: both, and the interpreter of a
// script. The channel is closed when that is done. While a disk does not answer, only the read blocks: the Go runtime
// forks such that a fork that waits for a disk keeps a processor, all other forks of the process, and its garbage
// collector. ReadProgram reports no errors, as the fork will.
//
// A read that waits for a disk keeps a thread. So there is one for each program, however often it is to be executed: a
// probe that fails every few seconds would otherwise use up all threads, and end the process.
func ReadProgram(program, dir string) <-chan struct{} {
	key := [2]string{program, dir}
	reading.Lock()
	defer reading.Unlock()
	if pending := reading.programs[key]; pending != nil {
		return pending
	}
	done := make(chan struct{})
	reading.programs[key] = done
	go func() { // ends when the disk answers
		readProgram(program, dir)
		reading.Lock()
		defer reading.Unlock()
		delete(reading.programs, key)
		close(done)
	}()
	return done
}

// reading are the reads that have not ended, by program and directory.
var reading = struct {
	sync.Mutex
	programs map[[2]string]chan struct{}
}{programs: make(map[[2]string]chan struct{})}

func readProgram(program, dir string) {
	if dir != "" {
		if fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
		}
	}
	for range maxInterpreters {
		if program == "" {
			return
		}
		if strings.Contains(program, "/") && !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		if path, err := exec.LookPath(program); err == nil {
			program = path
		}
		program = interpreter(program)
	}
}

// maxInterpreters is how many scripts the kernel permits whose interpreter is a script.
const maxInterpreters = 5

// interpreter reads the beginning of a program and returns the interpreter that it names; empty for none.
func interpreter(program string) string {
	file, err := os.OpenFile(program, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO does not block it
	if err != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, os.Getpagesize())
	n, _ := io.ReadFull(file, head) // what there is
	line, script := strings.CutPrefix(string(head[:n]), "#!")
	if line, _, _ = strings.Cut(line, "\n"); !script || strings.TrimSpace(line) == "" {
		return ""
	}
	return strings.Fields(line)[0]
}
