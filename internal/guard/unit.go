package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// Unit is leader-only work that systemd runs. It starts the unit only while there is a permit; the guard takes the permit
// away and kills the unit's control group, which the unit entrusts to it as it starts (see [Entrust]). For that neither
// systemd nor D-Bus is needed, so that the unit ends with the lease as a child does (S1).
type Unit struct {
	Name string `json:"name"`
	// Group is its control group, below where the hierarchy is mounted.
	Group string `json:"group"`
	// Permit is a directory that exists while the unit may run, see [Permit].
	Permit string `json:"permit"`
}

// Permit returns the permit of a unit that belongs to the zkelectd of this process; empty if there can be none.
//
// It is a control group without processes. systemd looks for it, and for [PermitFile] in it, each time that it starts a
// process of the unit, so nothing starts once the guard has removed it. This user can make and remove it, but nothing else
// can be there than what the kernel puts there: no FIFO that systemd would wait for, and no text that it would go by.
func PermitDir() string {
	parent := cgroupParent()
	if parent == "" {
		return ""
	}
	return filepath.Join(parent, "zkelectd-permit")
}

// PermitFile is the file in a permit that the unit has as an EnvironmentFile=. Its lines are no assignments.
const PermitFile = eventsFile

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

// allow makes the permit.
func (u Unit) allow() error {
	if err := os.Mkdir(u.Permit, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make the permit, a control group: %w", err)
	}
	return nil
}

// end keeps a unit from starting, kills it, and finds out when it is dead. The permit goes first: what systemd starts
// after that fails, and what it had started before is found in the control group.
type end struct {
	unit    Unit
	dir     string
	group   *cgroup // nil until it was found
	revoked bool
	quiet   time.Duration // since when nothing runs; 0 if something does
}

func newEnd(u Unit) (*end, error) {
	dir, err := u.dir()
	return &end{unit: u, dir: dir}, err
}

// prepare opens what the end needs, as soon as systemd has made the control group, and again for as long as the unit has not
// entrusted it: then it can be watched, and not killed.
func (e *end) prepare() {
	if e.group != nil && e.group.kills >= 0 {
		return
	}
	if group, err := openUnitGroup(e.dir); err == nil {
		e.close()
		e.group = group
	}
}

func (e *end) close() {
	e.group.close()
	e.group = nil
}

// sweep takes the permit away, kills if so asked, and reports whether the unit is dead.
func (e *end) sweep(kill bool) (dead bool) {
	e.prepare()
	if kill {
		e.group.kill()
	}
	if !e.revoked {
		err := os.Remove(e.unit.Permit)
		e.revoked = err == nil || errors.Is(err, fs.ErrNotExist)
	}
	if !e.empty() {
		e.quiet = 0
		return false
	}
	now := boottime.Now()
	if e.quiet == 0 {
		e.quiet = now
	}
	return e.revoked && now-e.quiet > lull
}

// empty reports whether the kernel says that nothing runs in the unit's control group: it is not populated, or there is
// none. One that was made anew is another.
func (e *end) empty() bool {
	if e.group != nil && e.group.populated() {
		return false
	}
	again, err := openUnitGroup(e.dir)
	if err != nil {
		return ContainmentRecord{Group: e.dir}.removed(err) == nil
	}
	e.close()
	e.group = again
	return !again.populated()
}

// openUnitGroup opens a unit's control group. Whoever may not write its cgroup.kill can still see whether it is empty.
func openUnitGroup(dir string) (*cgroup, error) {
	c := &cgroup{dir: dir}
	var err error
	if c.file, err = os.Open(dir); err != nil {
		return nil, err
	}
	if c.events, err = unix.Openat(int(c.file.Fd()), eventsFile, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("cannot read whether anything runs in the control group %s: %w", dir, err)
	}
	c.kills, _ = unix.Openat(int(c.file.Fd()), killFile, unix.O_WRONLY|unix.O_CLOEXEC, 0) // -1 where it may not be written
	return c, nil
}

// Await ends the unit in the stead of a guard that is dead, and waits for that, for no longer than limit.
func (u Unit) KillAndWait(limit time.Duration) error {
	e, err := newEnd(u)
	if err != nil {
		return err
	}
	defer e.close()
	for over := boottime.Now() + limit; !e.sweep(true); time.Sleep(sweepLeast) {
		if boottime.Now() > over {
			return fmt.Errorf("%s does not end: something of it still runs in %s", u.Name, e.dir)
		}
	}
	return nil
}

// Runs reports whether something runs in the unit's control group, or may run there.
func (u Unit) MayRun() bool {
	e, err := newEnd(u)
	if err != nil {
		return true
	}
	defer e.close()
	return !e.empty()
}

// Entrusted tells that this process may end the unit.
func (u Unit) CheckKillGranted() error {
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

// OwnGroup returns the control group of the unit that this process belongs to, below where the hierarchy is mounted.
func OwnCgroup() (string, error) {
	mount, own := ownCgroup()
	own = strings.TrimSuffix(own, "/.control") // where systemd puts what is not the service itself, with Delegate=
	if mount == "" || path.Base(own) == "/" {
		return "", errors.New("there is no control group of version 2 to entrust to the guard")
	}
	return own, nil
}

// Entrust allows a guard's user to kill all of the unit that this process, which is root's, belongs to.
func GrantKill(uid, gid int) error {
	own, err := OwnCgroup()
	if err != nil {
		return err
	}
	mount, _ := ownCgroup()
	return os.Chown(filepath.Join(mount, own, killFile), uid, gid)
}

// OwnService is the name of the systemd service that this process is a part of, "" for none.
func OwnService() string {
	_, own := ownCgroup()
	return serviceOf(own)
}

func serviceOf(group string) string {
	for _, name := range strings.Split(group, "/") {
		if strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}
