package testhelper

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildZkelectd builds zkelectd with build tags in a directory, with the race detector if this program has it, and
// returns its path.
func BuildZkelectd(t *testing.T, dir, tags string) string {
	t.Helper()
	path := filepath.Join(dir, "zkelectd"+tags)
	args := []string{"build", "-o", path, "-tags", tags}
	if Race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, "zkelectd/cmd/zkelectd")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
