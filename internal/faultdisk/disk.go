// Package faultdisk provides a file system with one program on it that can be stopped from answering, as a disk that stalls:
// for tests and the fault campaign. It needs root and /dev/fuse.
package faultdisk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a mounted file system. Whoever has mounted it closes it.
type Disk struct {
	// Program is the program's full name there.
	Program string

	content *os.File
	size    int64
	server  *fuse.Server

	mu      sync.Mutex
	stalled chan struct{} // closed when it answers again; nil if it does
	waiting int           // requests that found it stalled
}

// Mount mounts a disk at dir, which holds a copy of program. Its pages are cached as those of any disk.
func Mount(dir, program string) (*Disk, error) {
	content, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	info, err := content.Stat()
	if err != nil {
		content.Close()
		return nil, err
	}
	d := &Disk{Program: filepath.Join(dir, filepath.Base(program)), content: content, size: info.Size()}
	long := time.Hour
	d.server, err = fs.Mount(dir, &root{disk: d}, &fs.Options{
		EntryTimeout: &long, AttrTimeout: &long,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, Name: "test", FsName: "disk"},
	})
	if err != nil {
		content.Close()
		return nil, fmt.Errorf("%w; this needs root and /dev/fuse (modprobe fuse)", err)
	}
	return d, nil
}

// Close ends a stall and unmounts the disk, on which nothing may run any more.
func (d *Disk) Close() error {
	d.Stall(false)
	if err := d.server.Unmount(); err != nil {
		return fmt.Errorf("unmounting the disk of %s: %w", d.Program, err)
	}
	d.server.Wait()
	return d.content.Close()
}

// Stall stops the disk from answering, or ends that.
func (d *Disk) Stall(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.stalled == nil:
		d.stalled = make(chan struct{})
	case !on && d.stalled != nil:
		close(d.stalled)
		d.stalled = nil
	}
}

// Waited returns how many requests found the disk stalled.
func (d *Disk) Waited() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

type root struct {
	fs.Inode
	disk *Disk
}

// OnAdd is for package fs.
func (r *root) OnAdd(ctx context.Context) {
	r.AddChild(filepath.Base(r.disk.Program), r.NewPersistentInode(ctx, &file{disk: r.disk}, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

// file is the program on the disk.
type file struct {
	fs.Inode
	disk *Disk
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o755, uint64(f.disk.size)
	return 0
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, buf []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	f.disk.mu.Lock()
	stalled := f.disk.stalled
	if stalled != nil {
		f.disk.waiting++
	}
	f.disk.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	n, err := f.disk.content.ReadAt(buf, at)
	if n == 0 && err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buf[:n]), 0
}
