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
	"zkelectd/internal/workenv"
)

// Limit bounds an admission: systemd waits for it.
const Timeout = 2 * time.Second

// Files is where environment files are made. Only root writes there. The units' runtime directories have names with a
// hyphen, so that none can be this one.
const EnvDir = "/run/zkelectd.units"

// ErrNotLeading says that the unit may not run on this host now.
var ErrNotLeading = errors.New("this host does not lead")

// EnvironmentFile returns the setting by which systemd finds the environment file of a unit, which is a pattern.
func EnvironmentFile(unit string) string { return path.Join(EnvDir, unit+".env") }

// file is the name that the pattern stands for: the backslashes of a unit's name quote there.
func file(unit string) string { return strings.ReplaceAll(unit, `\`, "") + ".env" }

// Admit lets the unit that this process is the start of run, if the daemon that listens at socket leads with it: it makes its
// environment file below files, and entrusts its control group to the guard.
func Admit(ctx context.Context, socket, files string) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- admit(ctx, socket, files) }() // ends in time, or with the process if a file system blocks it
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return late(socket)
	}
}

func admit(ctx context.Context, socket, files string) error {
	group, err := guard.OwnCgroup()
	if err != nil {
		return err
	}
	p, err := dial(ctx, socket)
	if err != nil {
		return explain(socket, err)
	}
	defer p.close()
	a, err := readAnswer(p.conn)
	if err == nil {
		err = p.check(a)
	}
	if err != nil {
		return explain(socket, err)
	}
	unit := path.Base(group)
	if a.Group != group {
		return fmt.Errorf("zkelectd leads with %q, and this is %q: correct child.unit, or the socket in the drop-in (systemctl edit %s)", a.Group, group, unit)
	}
	if err := a.Fencing.Check(); err != nil {
		return fmt.Errorf("what zkelectd says at %s is not put into the environment of %s: %w: correct its configuration (zkelectd check), and restart it", socket, unit, err)
	}
	if err := writeFile(files, file(unit), a.Fencing); err != nil {
		return fmt.Errorf("cannot make the environment file of %s: %w", unit, err)
	}
	return guard.GrantKill(p.uid, p.gid)
}

func late(socket string) error {
	return fmt.Errorf("the daemon does not answer at %s within %s: is it hung? (systemctl status zkelectd)", socket, Timeout)
}

// explain adds what to do about an answer from another process than the daemon.
func explain(socket string, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return late(socket)
	case errors.Is(err, ErrNotLeading):
		return err
	}
	return fmt.Errorf("what is at %s is not this host's zkelectd: %w; find out who made it (ss -xlp), and restart zkelectd", socket, err)
}

// writeFile makes a file in one step, in a directory that nobody else writes.
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

// privateDir makes and opens a directory that only this user writes.
func privateDir(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	there, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if stat := there.Sys().(*syscall.Stat_t); !there.IsDir() || int(stat.Uid) != os.Geteuid() || there.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s (%s of user %d) is not a directory that only user %d writes: remove it", dir, there.Mode(), stat.Uid, os.Geteuid())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(there, opened) {
		err = fmt.Errorf("%s was replaced meanwhile", filepath.Clean(dir))
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}
