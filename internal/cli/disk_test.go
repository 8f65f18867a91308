package cli

import (
	"os"
	"path/filepath"
	"testing"

	"zkelectd/internal/test/hostfault"
)

// newDisk mounts a disk with the program zkelectd on it.
func newDisk(t *testing.T) *hostfault.Disk {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "zkelectd") // the test binary runs as what its name says
	if err := os.Symlink(own, program); err != nil {
		t.Fatal(err)
	}
	d, err := hostfault.MountDisk(t.TempDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// controlGroup is a control group of version 1.
type controlGroup struct {
	t *testing.T
	hostfault.ControlGroup
}

// newControlGroup creates a control group that is removed with the test, when all its processes must have ended.
func newControlGroup(t *testing.T, controller string) controlGroup {
	t.Helper()
	g, err := hostfault.NewControlGroup(controller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(testTimeout); err != nil {
			t.Error(err)
		}
	})
	return controlGroup{t, g}
}

func (g controlGroup) set(file, value string) {
	g.t.Helper()
	if err := g.Set(file, value); err != nil {
		g.t.Fatal(err)
	}
}

func (g controlGroup) number(file string) int64 {
	g.t.Helper()
	n, err := g.Number(file)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}
