package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// OpenFound opens for reading a file in a directory that another user may own: this process may be root, and that user
// may have put there a link to a file that only root can read, or what blocks its reader. The file must be a regular
// one of the directory's owner.
func OpenFound(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed", path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFound(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return file, nil
}

func checkFound(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(file.Name()))
	if err != nil {
		return err
	}
	owner, user := dir.Sys().(*syscall.Stat_t).Uid, info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case user != owner:
		return fmt.Errorf("belongs to user %d, but its directory to user %d", user, owner)
	}
	return nil
}

// ReadFound returns the content of a file like [OpenFound], which must not be larger than limit.
func ReadFound(path string, limit int64) ([]byte, error) {
	file, err := OpenFound(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
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
	info, err := file.Stat()
	if err == nil {
		err = checkOwn(info)
	}
	if err == nil && info.Size() > limit {
		err = fmt.Errorf("is larger than %d bytes: remove it", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return io.ReadAll(io.LimitReader(file, limit))
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
