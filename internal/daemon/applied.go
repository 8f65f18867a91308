package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"zkelectd/internal/sys/secretfile"
)

// maxApplied bounds the configuration in force, in bytes: that of a host with as many groups as there can be.
const maxApplied = 64 << 20

// readApplied returns the configuration that was in force when guard and daemon were killed together; nil if they were
// not. file is empty without a runtime directory.
func readApplied(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := secretfile.ReadOwn(file, maxApplied)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration that was in force when zkelectd was killed: %w", err)
	}
	return data, nil
}

// writeApplied stores the configuration in force, which readApplied returns unless zkelectd is stopped before.
func writeApplied(file string, content []byte) error {
	if file == "" {
		return nil
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".zkelectd-applied-") // created with mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}
