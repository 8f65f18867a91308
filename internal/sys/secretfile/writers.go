package secretfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// CheckWriters returns an error if a user other than root and the user of this process can change what path names:
// because of the mode or the owner of the open file, or of the directories in the path. It accepts read-only mounts,
// which cannot be changed from inside a container and whose owner is often unknown there, and devices, whose content is
// not in the file.
func CheckWriters(path string, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("cannot be checked: %w", err)
	}
	dirs := []string{filepath.Dir(path)}
	if info.Mode()&fs.ModeDevice != 0 || readOnlyMount(path) || readOnlyMount(dirs[0]) {
		return nil
	}
	if err := checkOwnerAndMode(path, "the file", info); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("its directory cannot be checked: %w", errors.Unwrap(err))
		}
		if err := checkOwnerAndMode(dir, "its directory "+dir, info); err != nil {
			return err
		}
		if err := checkAbove(dir); err != nil {
			return err
		}
	}
	return nil
}

// CheckDirectory returns an error unless dir is a directory to which no user other than root and the user of this
// process can add files.
func CheckDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	case !info.IsDir():
		return errors.New("is not a directory")
	case readOnlyMount(dir):
		return nil
	case info.Mode()&fs.ModeSticky != 0 && othersWrite(info):
		return fmt.Errorf("can be changed by others, who can add files: chmod go-w %s", dir)
	}
	if err := checkOwnerAndMode(dir, "the directory", info); err != nil {
		return err
	}
	return checkAbove(dir)
}

// checkAbove returns an error if all users can replace a directory in the path of dir. It ignores owners and groups
// there, which may be unknown in a user namespace.
func checkAbove(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("its directory cannot be checked: %w", err)
	}
	for dir != "/" && !readOnlyMount(dir) {
		dir = filepath.Dir(dir)
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return fmt.Errorf("the directory %s above it cannot be checked: %w", dir, errors.Unwrap(err))
		case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("can be changed by others: the directory %s above it has mode %#o: chmod o-w %s", dir,
				info.Mode().Perm(), dir)
		}
	}
	return nil
}

// CheckWritersOf is [CheckWriters] for a file that the setting key names.
func CheckWritersOf(key, path string) error {
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		err = CheckWriters(path, file)
	}
	if err != nil {
		return fmt.Errorf("%s: %s %w", key, path, err)
	}
	return nil
}

// checkOwnerAndMode applies the rules of ssh: the owner must be root or this user, and no other user may have write
// permission. A group with the id of the owner is assumed to have no other member: where each user has such a group,
// files are often writable for it.
func checkOwnerAndMode(path, what string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("cannot be checked: its owner is unknown")
	}
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0 // there only the owner of a file can replace it
	switch {
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("can be changed by others: %s belongs to user %d, neither root nor this one: chown root %s",
			what, stat.Uid, path)
	case !sticky && othersWrite(info):
		return fmt.Errorf("can be changed by others: %s has mode %#o: chmod go-w %s", what, info.Mode().Perm(), path)
	}
	return nil
}

// othersWrite reports whether the mode lets another user than the owner write, in a group with the owner's id nobody.
func othersWrite(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	return mode&0o002 != 0 || mode&0o020 != 0 && (!ok || stat.Gid != stat.Uid)
}

// readOnlyMount reports whether path is the mount point of a read-only mount. That its file system is read-only is not
// enough: systemd's ProtectSystem= makes all file systems read-only for a service, but not for other processes.
func readOnlyMount(path string) bool {
	var at unix.Statx_t
	var system unix.Statfs_t
	return unix.Statx(unix.AT_FDCWD, path, 0, 0, &at) == nil && at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 &&
		unix.Statfs(path, &system) == nil && system.Flags&unix.ST_RDONLY != 0
}
