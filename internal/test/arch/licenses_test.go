package arch

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The copyright file of the packages contains the license of every module that the build information of the binary lists.
func TestLicensesOfAllModulesAreIncluded(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "zkelectd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "zkelectd/cmd/zkelectd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "../../../scripts/licenses.sh")
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	parts := make(map[string]string) // by their first line
	for part := range strings.SplitSeq(string(out), "\n"+strings.Repeat("-", 80)+"\n\n") {
		name, text, _ := strings.Cut(part, "\n")
		parts[name] = text
	}
	if len(info.Deps) < 10 {
		t.Fatalf("the binary lists %d modules", len(info.Deps))
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if text := strings.ToLower(parts[fmt.Sprint(m.Path, " ", m.Version)]); !strings.Contains(text, "copyright") && !strings.Contains(text, "license") {
			t.Errorf("%s %s is in the binary, but its license is not in the output of scripts/licenses.sh", m.Path, m.Version)
		}
	}
	if text := parts["The Go runtime and standard library"]; !strings.Contains(text, "The Go Authors") {
		t.Error("the license of Go is missing")
	}
}
