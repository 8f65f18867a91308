package harden

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadProgram reads what the kernel reads before it executes a program in a directory: both, and the interpreter of a
// script. It blocks while a disk does not answer, and only its caller: the Go runtime forks such that a fork that waits
// for a disk keeps a processor, all other forks of the process, and its garbage collector. It reports no errors, as the
// fork will.
func ReadProgram(program, dir string) {
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

// AwaitProgram calls [ReadProgram]. It returns an error if the disk has not answered when ctx ends.
func AwaitProgram(ctx context.Context, program, dir string) error {
	done := make(chan struct{})
	go func() { // ends when the disk answers
		defer close(done)
		ReadProgram(program, dir)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s cannot be read: does its disk answer? %w", program, context.Cause(ctx))
	}
}
