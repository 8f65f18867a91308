// Package secretfile reads the files that settings name: passwords, tokens, keys and certificates. It also checks who can
// change a file.
package secretfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxFile bounds what is read of a file that may be anything.
const maxFile = 1 << 20

// Private are the bits that the mode of a file with a secret may not have. Those of systemd's credentials are systemd's
// affair, which lets nobody else into their directory.
func Private(systemd bool) fs.FileMode {
	if systemd {
		return 0
	}
	return ^fs.FileMode(0o600) & fs.ModePerm
}

// Read reads what the setting key names. Of its mode no bit of others may be set. It is read where somebody waits, so what
// is no regular file, and could keep the reader waiting, is refused.
func Read(key, path string, others fs.FileMode) ([]byte, error) {
	bad := func(format string, args ...any) ([]byte, error) {
		return nil, fmt.Errorf("%s: %s "+format, append([]any{key, path}, args...)...)
	}
	if !strings.Contains(path, "/") {
		// It would be a file in whatever directory this process happens to be in.
		return bad("has no slash, so it names a credential of a systemd unit, but $CREDENTIALS_DIRECTORY is not set: " +
			"add LoadCredential= to the unit, or write a path")
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bad("cannot be read: %w", cmp.Or(errors.Unwrap(err), err))
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return bad("cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return bad("is no regular file")
	case info.Mode().Perm()&others != 0:
		return bad("has mode %#o, so that others may get at the secret: chmod 0600 it", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return bad("cannot be read: %w", err)
	case len(data) > maxFile:
		return bad("is larger than %d bytes", maxFile)
	}
	return data, nil
}
