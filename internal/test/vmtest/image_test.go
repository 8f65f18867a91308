package vmtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// modules are the drivers that the machine needs: of its network, its disk and its watchdog device.
var modules = []string{"virtio_pci", "virtio_net", "virtio_blk", "i6300esb"}

// image is a kernel, and the first file system of the machines without what differs between them.
type image struct {
	kernel string
	files  []file
}

// file is a file of the machine. Without data it is a directory.
type file struct {
	path string
	mode fs.FileMode
	data []byte
}

// newImage builds the programs and reads Debian's packages, which scripts/install-vm.sh has extracted into the directory packages.
func newImage(t *testing.T, packages, programs string) image {
	t.Helper()
	kernels, err := filepath.Glob(filepath.Join(packages, "boot/vmlinuz-*"))
	if err != nil || len(kernels) == 0 {
		t.Fatalf("there is no kernel in %s: run scripts/install-vm.sh", packages)
	}
	img := image{kernel: slices.Max(kernels)}
	for _, dir := range []string{"bin", "dev", "etc", "lib", "proc", "run", "sys", "tmp"} {
		img.files = append(img.files, file{path: dir, mode: fs.ModeDir | 0o755})
	}
	img.add(t, "bin/busybox", 0o755, filepath.Join(packages, "bin/busybox"))
	img.add(t, "bin/zkelectd", 0o755, filepath.Join(programs, "zkelectd"))
	img.add(t, "bin/guest", 0o755, filepath.Join(programs, "guest"))
	img.add(t, "bin/guest-root", 0o755|fs.ModeSetuid, filepath.Join(programs, "guest"))
	version := strings.TrimPrefix(filepath.Base(img.kernel), "vmlinuz-")
	var order []string
	found := findModules(t, filepath.Join(packages, "lib/modules", version))
	for _, name := range modules {
		order = loadOrder(t, found, name, order)
	}
	for i, name := range order {
		img.add(t, fmt.Sprintf("lib/%02d-%s.ko", i, name), 0o644, found[name])
	}
	return img
}

func (img *image) add(t *testing.T, path string, mode fs.FileMode, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	img.files = append(img.files, file{path, mode, data})
}

// buildPrograms builds zkelectd and the guest's program into a directory, without the race detector, as they run on another kernel.
func buildPrograms(t *testing.T, dir string) {
	t.Helper()
	for _, path := range []string{"cmd/zkelectd", "internal/test/vmtest/guest"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "zkelectd/"+path)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// findModules returns the paths of a kernel's modules by their names.
func findModules(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			found[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// dependencies matches the modules that must be loaded before a module, as it names them.
var dependencies = regexp.MustCompile(`\x00depends=([a-z0-9_,-]*)\x00`)

// loadOrder adds a module and what it depends on to order. Modules that are not found are part of the kernel.
func loadOrder(t *testing.T, found map[string]string, name string, order []string) []string {
	t.Helper()
	name = strings.ReplaceAll(name, "-", "_")
	if found[name] == "" || slices.Contains(order, name) {
		return order
	}
	data, err := os.ReadFile(found[name])
	if err != nil {
		t.Fatal(err)
	}
	if m := dependencies.FindSubmatch(data); m != nil {
		for _, other := range strings.Split(string(m[1]), ",") {
			order = loadOrder(t, found, other, order)
		}
	}
	return append(order, name)
}

// write writes the file system as an archive that the kernel unpacks (cpio in the format newc), with further files.
func (img image) write(t *testing.T, path string, more ...file) {
	t.Helper()
	var b bytes.Buffer
	for i, f := range slices.Concat(img.files, more, []file{{path: "TRAILER!!!"}}) {
		mode := uint32(f.mode.Perm())
		switch {
		case f.mode.IsDir():
			mode |= 0o040000
		default:
			mode |= 0o100000
		}
		if f.mode&fs.ModeSetuid != 0 {
			mode |= 0o4000
		}
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", i, mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.path)+1, 0)
		b.WriteString(f.path)
		pad(&b, 1)
		b.Write(f.data)
		pad(&b, 0)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pad writes at least n zeros, up to a multiple of four.
func pad(b *bytes.Buffer, n int) {
	for ; n > 0 || b.Len()%4 != 0; n-- {
		b.WriteByte(0)
	}
}
