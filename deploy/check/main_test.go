// Package check parses the files of deploy/ strictly, as Compose and Kubernetes do, and checks their contents. It is a separate
// module, so that zkelectd does not depend on either.
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

// binary is zkelectd, which checks settings.
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
		fmt.Fprintln(os.Stderr, "cannot build zkelectd:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// checkSettings fails the test unless zkelectd accepts the settings in env. The arguments are those of zkelectd check, such as a child.
func checkSettings(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"check", "--offline", "--print"}, args...)...)
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "listen: :7980") && !strings.Contains(string(out), `listen: ":7980"`) {
		t.Errorf("the daemon does not listen where it is probed:\n%s", out)
	}
}

var exactVersion = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*$`)

// checkPinned fails the test if an image has no exact version.
func checkPinned(t *testing.T, image string) {
	t.Helper()
	if !exactVersion.MatchString(image) {
		t.Errorf("%s has no exact version", image)
	}
}

// password matches a generated password file.
var password = regexp.MustCompile(`^zkelectd:[0-9a-f]{32}\n?$`)

// probes matches the paths of the probes.
var probes = regexp.MustCompile(`^/(leader|heir|replica|health|livez|readyz)$`)
