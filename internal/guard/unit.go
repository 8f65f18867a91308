package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
)

// Unit is leader-only work that systemd runs. It starts the unit only while there is a permit; the guard takes the permit
// away and kills the unit's control group, which the unit entrusts to it as it starts (see [Admit]). For that neither
// systemd nor D-Bus is needed, so that the unit ends with the lease as a child does (S1).
type Unit struct {
	Name string `json:"name"`
	// Group is its control group, below where the hierarchy is mounted.
	Group string `json:"group"`
	// Permit is a file that exists while the unit may run; the unit takes its environment from it.
	Permit string `json:"permit"`
}

// lull is how long nothing may have run in a control group that still exists before the unit counts as dead: systemd may
// be about to start the next of its processes.
const lull = 200 * time.Millisecond

// dir is the control group's directory.
func (u Unit) dir() (string, error) {
	mount, _ := ownCgroup()
	if mount == "" {
		return "", errors.New("there are no control groups of version 2, by which a unit can be ended")
	}
	if !path.IsAbs(u.Group) || path.Clean(u.Group) != u.Group || u.Group == "/" {
		return "", fmt.Errorf("%q is no unit's control group", u.Group)
	}
	return filepath.Join(mount, u.Group), nil
}

// permitHead begins a permit: whose it is.
const permitHead = "# The permit of guard "

// allow writes the permit, in one step.
func (u Unit) allow(guard int, env []string) error {
	s, err := readStat(guard)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, permitHead+"%d %d: %s may run while this file exists.\n", guard, s.started, u.Name)
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		text = append(text, key+`="`+quoting.Replace(value)+"\"\n"...)
	}
	temp := u.Permit + ".new"
	if err := os.WriteFile(temp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, u.Permit)
}

// quoting is what systemd.exec(5) asks for within double quotes.
var quoting = strings.NewReplacer(`"`, `\"`, `\`, `\\`, "`", "\\`", `$`, `\$`)

// end keeps a unit from starting, kills it, and finds out when it is dead. The permit goes first: what systemd starts
// after that fails, and what it had started before is found in the control group.
type end struct {
	unit    Unit
	dir     string
	revoked bool
	quiet   time.Duration // since when nothing runs; 0 if something does
}

func newEnd(u Unit) (*end, error) {
	dir, err := u.dir()
	return &end{unit: u, dir: dir}, err
}

// sweep takes the permit away, kills if so asked, and tells that the unit is dead.
func (e *end) sweep(kill bool) (dead bool) {
	if !e.revoked {
		err := os.Remove(e.unit.Permit)
		e.revoked = err == nil || errors.Is(err, fs.ErrNotExist)
	}
	group := &cgroup{dir: e.dir}
	if _, err := os.Stat(e.dir); errors.Is(err, fs.ErrNotExist) {
		return e.revoked
	}
	if group.populated() {
		e.quiet = 0
		if kill {
			group.kill()
		}
		return false
	}
	now := boottime.Now()
	if e.quiet == 0 {
		e.quiet = now
	}
	return e.revoked && now-e.quiet > lull
}

// Await ends the unit in the stead of a guard that is dead, and waits for that, for no longer than limit.
func (u Unit) Await(limit time.Duration) error {
	e, err := newEnd(u)
	if err != nil {
		return err
	}
	for over := boottime.Now() + limit; !e.sweep(true); time.Sleep(sweepLeast) {
		if boottime.Now() > over {
			return fmt.Errorf("%s does not end: something of it still runs in %s", u.Name, e.dir)
		}
	}
	return nil
}

// Runs tells that something runs in the unit's control group.
func (u Unit) Runs() bool {
	dir, err := u.dir()
	return err == nil && (&cgroup{dir: dir}).populated()
}

// Entrusted tells that this process may end the unit.
func (u Unit) Entrusted() error {
	dir, err := u.dir()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, killFile), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("the guard could not end it: %w", err)
	}
	return f.Close()
}

// Admit is what the unit runs as root before anything else: it refuses without the permit of a guard that is alive, and
// entrusts the unit's control group to the guard's user.
func Admit(permit string) error {
	f, err := os.Open(permit)
	if err != nil {
		return fmt.Errorf("this host does not lead: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var pid int
	var started uint64
	if _, err := fmt.Fscanf(f, permitHead+"%d %d:", &pid, &started); err != nil {
		return fmt.Errorf("%s is no permit: %w", permit, err)
	}
	if s, err := readStat(pid); err != nil || s.zombie || s.started != started {
		return fmt.Errorf("this host does not lead: %s is of guard %d, which is dead", permit, pid)
	}
	mount, own := ownCgroup()
	own = strings.TrimSuffix(own, "/.control") // where systemd puts what is not the service itself, with Delegate=
	if mount == "" || path.Base(own) == "/" {
		return errors.New("there is no control group of version 2 to entrust to the guard")
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Chown(filepath.Join(mount, own, killFile), int(owner.Uid), int(owner.Gid))
}

// OwnService is the name of the systemd service that this process is a part of, "" for none.
func OwnService() string {
	_, own := ownCgroup()
	for _, name := range strings.Split(own, "/") {
		if strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}
