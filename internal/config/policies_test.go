package config

import (
	"os"
	"strings"
	"testing"

	"zkelectd/internal/policy"
)

// Users copy the examples of docs/policies.md, so they must be valid.
func TestPolicyExamplesAreValid(t *testing.T) {
	data, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	n := 0
	for rest := doc; ; n++ {
		_, after, found := strings.Cut(rest, "```yaml\n")
		if !found {
			break
		}
		text, after, _ := strings.Cut(after, "```")
		if _, err := Load(Sources{File: file(t, text)}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		rest = after
	}
	if n < len(policy.Types()) {
		t.Errorf("%d examples", n)
	}
	for _, name := range append(policy.Types(), policy.Rankers()...) {
		if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "type: "+name) {
			t.Errorf("%s is not in docs/policies.md", name)
		}
	}
	for _, name := range policy.Types() {
		if !strings.Contains(doc, "type: "+name) {
			t.Errorf("%s has no example in docs/policies.md", name)
		}
	}
}
