// Package check reads the files of deploy/ strictly, as Compose and Kubernetes do, and looks that they keep what they
// promise. It is a module of its own, so that the product need not know either of them.
package check

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// binary is the product: it tells whether settings are its own.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "zkelectd-check-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "zkelectd")
	build := exec.Command("go", "build", "-o", binary, "./cmd/zkelectd")
	build.Dir, build.Stderr = "../..", os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the product does not build:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// accepted has the daemon say whether it would take these settings for this child.
func accepted(t *testing.T, env map[string]string, child []string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"check", "--offline", "--"}, child...)...)
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "listen: :7980") && !strings.Contains(string(out), `listen: ":7980"`) {
		t.Errorf("its probes have nowhere to ask:\n%s", out)
	}
}

var exact = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*$`)

// pinned refuses an image of which nobody can say what is in it.
func pinned(t *testing.T, image string) {
	t.Helper()
	if !exact.MatchString(image) {
		t.Errorf("%s has no exact version", image)
	}
}

// password is what a generated one looks like.
var password = regexp.MustCompile(`^zkelectd:[0-9a-f]{32}\n?$`)

// probes are what the daemon can be asked.
var probes = regexp.MustCompile(`^/(leader|replica|health|livez|readyz)$`)
