package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", "zkelectd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]pkg)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, "zkelectd/")] = p
	}
}

// The core is pure, so that millions of schedules can be simulated.
func TestCoreIsPure(t *testing.T) {
	all := packages(t)
	for _, name := range []string{"cluster", "cluster/renewal", "policy", "elector", "elector/termlog", "elector/whatif", "transition", "transition/failsafe", "watchdog", "operator/request", "operator/losses"} {
		p, ok := all["internal/"+name]
		if !ok {
			t.Fatalf("internal/%s is missing", name)
		}
		for _, dep := range p.Deps {
			switch dep {
			case "net", "os/exec", "net/http", "github.com/go-zookeeper/zk", "golang.org/x/sys/unix":
				t.Errorf("internal/%s depends on %s", name, dep)
			case "zkelectd/internal/operator/status", "zkelectd/internal/web", "zkelectd/internal/web/page":
				t.Errorf("internal/%s depends on %s, which is presentation", name, dep)
			}
		}
	}
	for _, name := range []string{"elector", "transition", "watchdog"} {
		for _, dep := range all["internal/"+name].Deps {
			for _, other := range []string{"elector", "transition", "watchdog"} {
				if other != name && dep == "zkelectd/internal/"+other {
					t.Errorf("internal/%s depends on internal/%s", name, other)
				}
			}
		}
	}
}

// Each of these libraries is imported in one place.
func TestLibrariesAreImportedInOnePlace(t *testing.T) {
	allowed := map[string][]string{
		"github.com/spf13/viper":                {"internal/config"},
		"github.com/go-zookeeper/zk":            {"internal/zk", "bench"}, // the benchmark compares with a plain lock
		"github.com/coreos/go-systemd/v22/dbus": {"internal/work/systemd"},
		"github.com/godbus/dbus/v5":             {"internal/work/systemd"},
	}
	for name, p := range packages(t) {
		for _, dep := range p.Imports {
			if places, limited := allowed[dep]; limited && !slices.Contains(places, name) {
				t.Errorf("%s imports %s, which only %v may import", name, dep, places)
			}
		}
	}
}
