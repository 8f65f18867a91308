package guard

import (
	"slices"
	"testing"

	"zkelectd/internal/config"
)

// The configuration offers what there is, without knowing this package.
func TestContainmentsCanBeConfigured(t *testing.T) {
	all := []string{string(Auto), string(CgroupContainment), string(KeeperContainment)}
	for _, key := range config.Keys() {
		if key.Name == "child.containment" && (key.Default != string(Auto) || !slices.Equal(key.Values, all)) {
			t.Errorf("the default is %v, of %q instead of %q", key.Default, key.Values, all)
		}
	}
}
