package hostfault

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a mounted file system with one program on it, which can stop answering, as a disk does that stalls. The code
// that mounted it must close it.
type Disk struct {
	// Program is the path of the program on the disk.
	Program string

	content *os.File
	size    int64
	server  *fuse.Server

	mu      sync.Mutex
	stalled chan struct{} // closed when the disk answers again; nil if it does
	waiting int           // requests that found the disk stalled
}

// MountDisk mounts a disk at dir, with a copy of program on it. Its pages are cached like those of any disk.
func MountDisk(dir, program string) (*Disk, error) {
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
	d.server, err = fs.Mount(dir, &diskRoot{disk: d}, &fs.Options{
		EntryTimeout: &long, AttrTimeout: &long,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, Name: "test", FsName: "disk"},
	})
	if err != nil {
		content.Close()
		return nil, fmt.Errorf("%w; this needs root and /dev/fuse (modprobe fuse)", err)
	}
	closeOnExec("/dev/fuse")
	return d, nil
}

// closeOnExec keeps the programs that this process starts from inheriting its descriptors of a device. As long as one
// of them has /dev/fuse open, a request that nobody will ever answer is not given up, and a program that opens a file
// on the disk hangs.
func closeOnExec(device string) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if target, _ := os.Readlink(link); target == device {
			if fd, err := strconv.Atoi(filepath.Base(link)); err == nil {
				syscall.CloseOnExec(fd)
			}
		}
	}
}

// Close ends a stall and unmounts the disk. No program may run from it any more.
func (d *Disk) Close() error {
	d.Stall(false)
	if err := d.server.Unmount(); err != nil {
		return fmt.Errorf("unmounting the disk of %s: %w", d.Program, err)
	}
	d.server.Wait()
	return d.content.Close()
}

// Stall stops the disk from answering if on is true, and lets it answer again otherwise.
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

type diskRoot struct {
	fs.Inode
	disk *Disk
}

// OnAdd implements fs.NodeOnAdder.
func (r *diskRoot) OnAdd(ctx context.Context) {
	r.AddChild(filepath.Base(r.disk.Program), r.NewPersistentInode(ctx, &diskFile{disk: r.disk},
		fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

// diskFile is the program on the disk.
type diskFile struct {
	fs.Inode
	disk *Disk
}

func (f *diskFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o755, uint64(f.disk.size)
	return 0
}

func (f *diskFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (f *diskFile) Read(_ context.Context, _ fs.FileHandle, buf []byte, at int64) (fuse.ReadResult, syscall.Errno) {
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
