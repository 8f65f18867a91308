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

	"zkelectd/internal/sys/boottime"
)

// Unit is leader-only work that systemd runs. systemd starts the unit only while its permit exists. To end the unit,
// the guard removes the permit and kills the unit's control group, which it may do because the unit grants that as it
// starts (see [GrantKill]). The guard needs neither systemd nor D-Bus for that, so a unit ends with the lease as
// reliably as a child (S1).
type Unit struct {
	Name string `json:"name"`
	// Group is the path of its control group, relative to the mount point of the hierarchy.
	Group string `json:"group"`
	// Permit is a directory that exists while the unit may run, see [PermitDir].
	Permit string `json:"permit"`
}

// PermitDir returns the path of the permit for a unit that this zkelectd starts; empty if control groups are not
// delegated to it. Each unit has its own. systemd removes backslashes from an EnvironmentFile=, so the path has none.
//
// The permit is a control group without processes. systemd checks for it, and for [PermitFile] in it, each time it
// starts a process of the unit, so nothing starts once the guard has removed it. zkelectd's user can create and remove
// it, but only the kernel puts files into it: no FIFO that would block systemd, and no settings that systemd would
// apply.
func PermitDir(unit string) string {
	parent := delegatedCgroup()
	if parent == "" {
		return ""
	}
	return filepath.Join(parent, "zkelectd-permit-"+strings.ReplaceAll(unit, `\`, ""))
}

// PermitFile is the file in the permit that the unit names as an EnvironmentFile=. Its lines are not assignments.
const PermitFile = eventsFile

// quietTime is how long a unit's control group must have been empty before its permit is removed, and again before the
// unit counts as dead: systemd may be about to start the unit's next process.
const quietTime = 200 * time.Millisecond

// dir returns the directory of the unit's control group.
func (u Unit) dir() (string, error) {
	mount, _ := ownCgroup()
	if mount == "" {
		return "", errors.New("cgroup v2 is not mounted, so zkelectd cannot kill a unit")
	}
	if !path.IsAbs(u.Group) || path.Clean(u.Group) != u.Group || u.Group == "/" {
		return "", fmt.Errorf("%q is not the control group of a unit", u.Group)
	}
	return filepath.Join(mount, u.Group), nil
}

// grantPermit creates the permit.
func (u Unit) grantPermit() error {
	if err := os.Mkdir(u.Permit, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create the permit, a control group: %w", err)
	}
	return nil
}

// unitContainer is the [Container] of a unit. Once the permit is removed systemd cannot start another process of the
// unit, and those that it has started are in the control group.
type unitContainer struct {
	unit       Unit
	dir        string
	group      *cgroup // nil until it exists
	revoked    bool
	quietSince time.Duration // since when the group has been empty; 0 if it is not
}

func newUnitContainer(u Unit) (*unitContainer, error) {
	dir, err := u.dir()
	return &unitContainer{unit: u, dir: dir}, err
}

// open opens the control group as soon as systemd has created it. Until the unit has granted the right to kill it, the
// group can only be watched, so open tries again.
func (c *unitContainer) open() {
	if c.group != nil && c.group.killFD >= 0 {
		return
	}
	if group, _, err := openCgroupFiles(c.dir, false); err == nil {
		c.Close()
		c.group = group
	}
}

// Close closes the control group.
func (c *unitContainer) Close() {
	c.group.Close()
	c.group = nil
}

// Kill kills the unit, and removes the permit.
func (c *unitContainer) Kill() error {
	c.open()
	err := c.group.Kill()
	c.revoke()
	return err
}

// revoke removes the permit. The quiet time begins again: systemd may have looked for the permit just before.
func (c *unitContainer) revoke() {
	if !c.revoked {
		err := os.Remove(c.unit.Permit)
		c.revoked = err == nil || errors.Is(err, fs.ErrNotExist)
		c.quietSince = 0
	}
}

// Empty returns an error until the control group has been empty for quietTime since the permit was removed. A unit
// that stops in order needs the permit for its ExecStop= and ExecStopPost=, so unless Kill has removed the permit,
// Empty removes it only when the control group has been empty for quietTime.
func (c *unitContainer) Empty() error {
	if err := c.groupEmpty(); err != nil {
		c.quietSince = 0
		return err
	}
	now := boottime.Now()
	if c.quietSince == 0 {
		c.quietSince = now
	}
	switch {
	case now-c.quietSince <= quietTime:
		return errMayStart
	case !c.revoked:
		c.revoke()
		return errMayStart
	}
	return nil
}

var errMayStart = errors.New("systemd may still start processes of the unit")

// groupEmpty returns nil if the kernel says that nothing runs in the unit's control group: it is empty, or it does not
// exist. systemd may have created it again, so the path is checked as well.
func (c *unitContainer) groupEmpty() error {
	if err := c.group.Empty(); err != nil {
		return err
	}
	again, _, err := openCgroupFiles(c.dir, false)
	if err != nil {
		return checkCgroupRemoved(c.dir, err)
	}
	c.Close()
	c.group = again
	return again.Empty()
}

// MayRun reports whether a process runs, or may run, in the unit's control group.
func (u Unit) MayRun() bool {
	c, err := newUnitContainer(u)
	if err != nil {
		return true
	}
	defer c.Close()
	return c.groupEmpty() != nil
}

// CheckKillGranted returns an error unless this process may kill the unit's control group.
func (u Unit) CheckKillGranted() error {
	dir, err := u.dir()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, killFile), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("the guard could not kill it: %w", err)
	}
	return f.Close()
}

// OwnCgroup returns the control group of the unit that this process belongs to, relative to the mount point of the
// hierarchy.
func OwnCgroup() (string, error) {
	mount, own := ownCgroup()
	// where systemd starts ExecCondition= and similar commands of a unit with Delegate=
	own = strings.TrimSuffix(own, "/.control")
	if mount == "" || path.Base(own) == "/" {
		return "", errors.New("this process is not in a cgroup v2 control group of a unit")
	}
	return own, nil
}

// GrantKill allows a guard's user to kill the unit that this process, which must run as root, belongs to.
func GrantKill(uid, gid int) error {
	own, err := OwnCgroup()
	if err != nil {
		return err
	}
	mount, _ := ownCgroup()
	return os.Chown(filepath.Join(mount, own, killFile), uid, gid)
}
