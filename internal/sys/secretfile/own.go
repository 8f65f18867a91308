package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// OpenOwn opens or creates a file that only this user can read. It follows no symbolic link, and writes to no file that
// has another name or another owner.
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

// ReadOwn returns the content of a file that OpenOwn would open, of at most limit bytes.
func ReadOwn(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := CheckOwn(file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes: remove it", path, limit)
	}
	return data, err
}

func checkOwn(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case stat.Nlink != 1:
		return errors.New("has another name (a hard link): remove it")
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to user %d: run this as that user, or remove it", stat.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("has mode %#o, so others can read it: remove it", info.Mode().Perm())
	}
	return nil
}
