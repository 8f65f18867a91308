package guard

import (
	"slices"
	"testing"

	"zkelectd/internal/config"
)

// The configuration offers what there is, without knowing this package.
func TestContainmentsCanBeConfigured(t *testing.T) {
	for _, key := range config.Keys() {
		if key.Name == "child.containment" && key.Default != string(Auto) {
			t.Errorf("the default is %v", key.Default)
		}
	}
	if !slices.Equal(config.Containments, Containments) {
		t.Errorf("%q instead of %q", config.Containments, Containments)
	}
}
