package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/workenv"
)

// Timeout limits how long [Admit] takes, as systemd waits for it.
const Timeout = 2 * time.Second

// EnvDir is the directory of the environment files. Only root can write there. The runtime directories of zkelectd's
// units have a hyphen in their names, so none of them can be this directory.
const EnvDir = "/run/zkelectd.units"

// ErrNotLeading reports that the unit may not run on this host at present.
var ErrNotLeading = errors.New("this host does not lead")

// EnvironmentFile returns the value of EnvironmentFile= for a unit. systemd treats it as a glob pattern.
func EnvironmentFile(unit string) string { return path.Join(EnvDir, unit+".env") }

// environmentFileName returns the file name that matches this pattern, in which the backslashes of a unit's name quote.
func environmentFileName(unit string) string { return strings.ReplaceAll(unit, `\`, "") + ".env" }

// Admit admits the unit of which this process is an ExecCondition=, if the daemon that listens at socket leads with
// that unit: it writes the unit's environment file in envDir, and grants the guard the right to kill the unit.
func Admit(ctx context.Context, socket, envDir string) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	done := make(chan error, 1)
	// ends with the timeout, or with the process if a file system blocks it
	go func() { done <- admit(ctx, socket, envDir) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return timeoutError(socket)
	}
}

func admit(ctx context.Context, socket, envDir string) error {
	group, err := guard.OwnCgroup()
	if err != nil {
		return err
	}
	c, err := dial(ctx, socket)
	if err != nil {
		return explain(socket, err)
	}
	defer c.close()
	a, err := readAnswer(c.conn)
	if err == nil {
		err = c.verify(a)
	}
	if err != nil {
		return explain(socket, err)
	}
	unit := path.Base(group)
	if a.Group != group {
		return fmt.Errorf("zkelectd leads with %q, but this unit is %q: correct child.unit, or the socket in the "+
			"drop-in (systemctl edit %s)", a.Group, group, unit)
	}
	if err := a.Fencing.Check(); err != nil {
		return fmt.Errorf("refusing the environment that zkelectd sent at %s for %s: %w: correct its configuration "+
			"(zkelectd check), and restart it", socket, unit, err)
	}
	if err := writeFile(envDir, environmentFileName(unit), a.Fencing); err != nil {
		return fmt.Errorf("cannot write the environment file of %s: %w", unit, err)
	}
	return guard.GrantKill(c.uid, c.gid)
}

// timeoutError is the error for a daemon that does not answer in time.
func timeoutError(socket string) error {
	return fmt.Errorf("the daemon does not answer at %s within %s: is it hung? (systemctl status zkelectd)",
		socket, Timeout)
}

// explain adds to err what to do about a process at socket that is not the daemon.
func explain(socket string, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return timeoutError(socket)
	case errors.Is(err, ErrNotLeading):
		return err
	}
	return fmt.Errorf("the process at %s is not this host's zkelectd: %w; find out which process created the socket "+
		"(ss -xlp), and restart zkelectd", socket, err)
}

// writeFile writes an environment file atomically, in a directory that only this user can write.
func writeFile(dir, name string, f workenv.Fencing) error {
	root, err := privateDir(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var text []byte
	for _, kv := range f.Variables() {
		key, value, _ := strings.Cut(kv, "=")
		text = append(text, key+`="`+value+"\"\n"...)
	}
	temp := fmt.Sprintf(".%d-%s", os.Getpid(), name)
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
	}
	return err
}

// privateDir opens a directory that only this user can write, and creates it if necessary.
func privateDir(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if stat := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(stat.Uid) != os.Geteuid() ||
		info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s (%s of user %d) is not a directory that only user %d can write: remove it", dir,
			info.Mode(), stat.Uid, os.Geteuid())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s was replaced while it was opened", filepath.Clean(dir))
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}
