// Package hostcheck checks whether this host has what a configuration names: programs, the working directory, the
// systemd unit. A standby would otherwise notice only when it takes over. It starts nothing, and cannot tell whether a
// program would succeed.
package hostcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"zkelectd/internal/config"
	"zkelectd/internal/work/admission"
)

// Group returns an error for each setting of a group whose program, directory or unit this process could not use.
func Group(ctx context.Context, c config.Config) []error {
	var errs []error
	add := func(err error) {
		if err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	for i, l := range c.Fencing.Levels {
		if len(l.Command) > 0 {
			add(program(config.Program{Key: fmt.Sprintf("fencing.levels[%d].command", i), Name: l.Command[0]}, ""))
		}
	}
	for slot := range max(1, c.Slots.Count) {
		work := c.OfSlot(slot, max(1, c.Slots.Count))
		add(directory(work.Child.Dir))
		for _, p := range work.Programs() {
			dir := ""
			if p.Key == "child.command" {
				dir = work.Child.Dir
			}
			add(program(p, dir))
		}
	}
	if unit := c.OfSlot(0, max(1, c.Slots.Count)).Child.Unit; unit != "" {
		_, err := admission.CheckUnit(ctx, unit)
		add(err)
	}
	return errs
}

// program returns an error unless the program could be started, in the directory dir if that is not empty.
func program(p config.Program, dir string) error {
	path, err := exec.LookPath(p.Name)
	if dir != "" && strings.Contains(p.Name, "/") && !filepath.IsAbs(p.Name) {
		path, err = exec.LookPath(filepath.Join(dir, p.Name))
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s", p.Key, p.Name, lookupReason(p.Name, err))
	}
	if name := interpreter(path); name != "" {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %s is a script for %s, which does not exist", p.Key, path, name)
		}
	}
	return nil
}

func lookupReason(name string, err error) string {
	var path *fs.PathError
	switch {
	case !strings.Contains(name, "/"):
		return "is in no directory of $PATH (" + os.Getenv("PATH") + ")"
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, syscall.EISDIR):
		return "is a directory"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("cannot be executed by the user with id %d", os.Geteuid())
	case errors.As(err, &path):
		err = path.Err
	}
	return "cannot be used: " + err.Error()
}

// maxInterpreter is how much of a script the kernel reads to find its interpreter.
const maxInterpreter = 256

// interpreter returns the program that runs a script; empty if path is no script, or cannot be read.
func interpreter(path string) string {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, maxInterpreter)
	n, _ := file.Read(head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	command, script := bytes.CutPrefix(line, []byte("#!"))
	words := strings.Fields(string(command))
	if !script || len(words) == 0 {
		return ""
	}
	return words[0]
}

// directory returns an error unless the child could be started in the directory.
func directory(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("child.dir: %s does not exist", dir)
	case err != nil:
		return fmt.Errorf("child.dir: %s cannot be used: %w", dir, errors.Unwrap(err))
	case !info.IsDir():
		return fmt.Errorf("child.dir: %s is not a directory", dir)
	case unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS) != nil:
		return fmt.Errorf("child.dir: %s cannot be entered by the user with id %d", dir, os.Geteuid())
	}
	return nil
}
