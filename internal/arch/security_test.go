package arch

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// What SECURITY.md says that it holds by a test has that test.
func TestTheTestsThatSecurityNamesExist(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", "^func (Test|Fuzz)[A-Za-z0-9]+", "../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, name := range regexp.MustCompile(`(Test|Fuzz)[A-Za-z0-9]+`).FindAllString(string(out), -1) {
		there[name] = true
	}
	named := regexp.MustCompile("`((Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Errorf("it names %d tests", len(named))
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("SECURITY.md names %s, and there is no such test", m[1])
		}
	}
}
