// Package secretfile reads files that settings name: passwords, tokens, keys and certificates. It also checks which
// users can change a file.
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

// maxFile bounds how much is read from a file, in bytes.
const maxFile = 1 << 20

// ForbiddenMode returns the permission bits that a file with a secret must not have. Systemd's credentials may have
// any: they are in a directory that only the service can access.
func ForbiddenMode(systemd bool) fs.FileMode {
	if systemd {
		return 0
	}
	return ^fs.FileMode(0o600) & fs.ModePerm
}

// Read returns the content of the file that the setting key names. It returns an error if the file has one of the
// forbidden permission bits, or is not a regular file, which might block the reader.
func Read(key, path string, forbidden fs.FileMode) ([]byte, error) {
	bad := func(format string, args ...any) ([]byte, error) {
		return nil, fmt.Errorf("%s: %s "+format, append([]any{key, path}, args...)...)
	}
	if !strings.Contains(path, "/") {
		// The path would depend on the current directory of this process.
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
		return bad("is not a regular file")
	case info.Mode().Perm()&forbidden != 0:
		return bad("has mode %#o, so other users may be able to read the secret: chmod 0600 %s", info.Mode().Perm(), path)
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
