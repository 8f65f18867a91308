package arch

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	testName   = regexp.MustCompile("`((Test|Fuzz)[A-Za-z0-9]+)`")
	makeTarget = regexp.MustCompile("`make ([a-z-]+)")
)

func file(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The tests and make targets that SECURITY.md names exist.
func TestNamesInSecurityExist(t *testing.T) {
	text, makefile := file(t, "../../../SECURITY.md"), file(t, "../../../Makefile")
	out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", "^func (Test|Fuzz)[A-Za-z0-9]+", "../../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	existing := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		existing[strings.TrimSpace(strings.TrimPrefix(line, "func "))] = true
	}
	named := testName.FindAllStringSubmatch(text, -1)
	if len(named) < 30 {
		t.Errorf("SECURITY.md names only %d tests", len(named))
	}
	for _, m := range named {
		if !existing[m[1]] {
			t.Errorf("SECURITY.md names %s, which does not exist", m[1])
		}
	}
	for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("SECURITY.md names make %s, which does not exist", m[1])
		}
	}
}

// Every promise of SECURITY.md, a row of a table with the column "test", names a test, and so does every footnote.
func TestEveryPromiseInSecurityNamesATest(t *testing.T) {
	promises, proven := 0, false
	var notes []string
	text := file(t, "../../../SECURITY.md")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch last := cells[len(cells)-1]; {
		case strings.HasPrefix(line, "[^"):
			note, claim, _ := strings.Cut(line, ":")
			notes = append(notes, note)
			if !testName.MatchString(claim) {
				t.Errorf("a footnote names no test: %s", line)
			}
		case !strings.HasPrefix(line, "|"):
			proven = false
		case last == "test":
			proven = true
		case proven && !strings.HasPrefix(last, "---"):
			promises++
			if !testName.MatchString(last) {
				t.Errorf("a promise names no test: %s", line)
			}
		}
	}
	if promises < 30 {
		t.Errorf("SECURITY.md makes only %d promises", promises)
	}
	for _, ref := range regexp.MustCompile(`\[\^[a-z]+\]`).FindAllString(text, -1) {
		if !strings.Contains(strings.Join(notes, " "), ref) {
			t.Errorf("there is no footnote %s", ref)
		}
	}
}
