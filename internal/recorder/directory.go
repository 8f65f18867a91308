package recorder

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"zkelectd/internal/filelock"
	"zkelectd/internal/secretfile"
)

// extension is that of the files.
const extension = ".zkrec"

// directory is the directory with the two files of a node, which is locked while it is used.
type directory struct {
	dir, node string
	lock      *os.File
	older     string // the file to replace next
}

// fileState is the state of a file to go on with.
type fileState struct {
	size, segment int64
	torn          int64 // bytes that were cut off
}

// inUseError is the error of a directory that another daemon of the same node records to.
type inUseError struct{ held error }

func (e *inUseError) Error() string {
	return e.held.Error() + ", so it is in use by another zkelectd with this node id: set recorder.dir in one of them"
}

// paths returns the paths of the two files.
func (d *directory) paths() [2]string {
	base := filepath.Join(d.dir, url.PathEscape(d.node))
	return [2]string{base + ".a" + extension, base + ".b" + extension}
}

func (d *directory) open() (*os.File, fileState, error) {
	if err := d.acquire(); err != nil {
		return nil, fileState{}, err
	}
	paths := d.paths()
	files := [2]*os.File{}
	states := [2]fileState{}
	for i, path := range paths {
		var err error
		if files[i], err = secretfile.OpenOwn(path); err == nil {
			states[i], err = examine(files[i])
		}
		if err != nil {
			closeAll(files[:])
			return nil, fileState{}, err
		}
	}
	newest := 0
	if states[1].segment > states[0].segment {
		newest = 1
	}
	d.older = paths[1-newest]
	files[1-newest].Close()
	file, state := files[newest], states[newest]
	if err := cut(file, state); err != nil {
		file.Close()
		return nil, fileState{}, err
	}
	return file, state, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// cut removes what a crash has left behind the last complete frame.
func cut(file *os.File, state fileState) error {
	if err := file.Truncate(state.size); err != nil {
		return err
	}
	_, err := file.Seek(state.size, 0)
	return err
}

func (d *directory) next() (*os.File, error) {
	file, err := secretfile.OpenOwn(d.older)
	if err == nil {
		if err = file.Truncate(0); err != nil {
			file.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	paths := d.paths()
	d.older = paths[0]
	if file.Name() == paths[0] {
		d.older = paths[1]
	}
	return file, nil
}

// acquire creates, checks and locks the directory.
func (d *directory) acquire() error {
	if d.lock != nil && secretfile.CheckLinked(d.lock) == nil {
		return nil
	}
	d.close()
	if err := os.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	lock, err := filelock.Lock(context.Background(), filepath.Join(d.dir, url.PathEscape(d.node)+".lock"), 0)
	if errors.As(err, new(*filelock.HeldError)) {
		return &inUseError{err}
	}
	if err != nil {
		return err
	}
	d.lock = lock
	return nil
}

func (d *directory) close() {
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}

// examine returns where a file can be continued. A file that is no recording is written anew.
func examine(file *os.File) (fileState, error) {
	info, err := file.Stat()
	if err != nil {
		return fileState{}, err
	}
	if info.Size() == 0 {
		return fileState{}, nil
	}
	frames, err := newFrameReader(file)
	if err != nil {
		return fileState{torn: info.Size()}, nil
	}
	var state fileState
	for {
		kind, payload, err := frames.next()
		if err != nil {
			state.size, state.torn = frames.good, info.Size()-frames.good
			return state, nil
		}
		if kind == frameHeader {
			h, err := decodeHeader(payload)
			state.segment = cmp.Or(state.segment, h.Segment)
			if err != nil {
				return fileState{torn: info.Size()}, nil
			}
		}
	}
}
