package secretfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// CheckLinked returns an error if a file was removed while it was open: what is written to it is lost.
func CheckLinked(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		return fmt.Errorf("%s was removed", file.Name())
	}
	return nil
}

// OpenOwn opens or creates a file that only this user can read. It follows no symbolic link, and writes to no file that has another
// name or another owner.
func OpenOwn(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := CheckOwn(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// CheckOwn returns an error unless an open file is one that [OpenOwn] would return.
func CheckOwn(file *os.File) error {
	info, err := file.Stat()
	if err == nil {
		err = checkOwn(info)
	}
	if err != nil {
		return fmt.Errorf("%s %w", file.Name(), err)
	}
	return nil
}

func checkOwn(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case stat.Nlink != 1:
		return errors.New("has another name (a hard link): remove it")
	case int(stat.Uid) != os.Geteuid():
		return errors.New("belongs to another user: remove it")
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("has mode %#o, so others can read it: remove it", info.Mode().Perm())
	}
	return nil
}
