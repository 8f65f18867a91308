package arch

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows lists the packages of this module that each package may import; tests may import more. The core knows no shell, the
// group knows no configuration file, and the host puts the parts together.
var arrows = map[string]string{
	// The core: pure.
	"internal/cluster":         "",
	"internal/cluster/renewal": "cluster",
	"internal/policy":          "cluster",
	"internal/elector":         "cluster policy",
	"internal/failsafe":        "cluster",
	"internal/transition":      "cluster failsafe",
	"internal/watchdog":        "cluster",
	"internal/termlog":         "cluster",
	"internal/whatif":          "cluster elector policy watchdog",
	"internal/request":         "cluster policy suggest whatif",

	// Failsafe mode.
	"internal/failsafe/peer":  "",
	"internal/failsafe/agent": "cluster failsafe failsafe/peer statedir",

	// ZooKeeper.
	"internal/cluster/zkstore":     "boottime cluster cluster/renewal nowait secretfile",
	"internal/cluster/clustertest": "cluster cluster/renewal",

	// One daemon.
	"internal/host":      "boottime cluster cluster/zkstore command config elector failsafe failsafe/agent failsafe/peer fencer group guard hook hostcheck losses operator policy probe request status systemd watchdogdev whatif workenv worker",
	"internal/hostcheck": "admission config",
	"internal/group":     "boottime cluster cluster/renewal cluster/zkstore elector failsafe fencer guard policy procinfo status termlog transition watchdog workenv worker",
	"internal/worker":    "admission fencer guard hook probe systemd workenv",
	"internal/config":    "cluster policy probe secretfile suggest workenv",

	// Jobs that run once.
	"internal/oneshot": "cluster",

	// The guard, and what it needs.
	"internal/guard":       "boottime filelock harden nowait procinfo watchdogdev",
	"internal/harden":      "nowait",
	"internal/admission":   "guard systemd workenv",
	"internal/systemd":     "",
	"internal/watchdogdev": "",

	// Operators.
	"internal/operator": "cluster cluster/zkstore config elector fencer hook losses policy request status whatif workenv",
	"internal/status":   "cluster policy",
	"internal/doctor":   "cluster status",
	"internal/losses":   "cluster",
	"internal/httpapi":  "cluster page procinfo request secretfile status whatif",
	"internal/page":     "",

	// Tools.
	"internal/asynclog":   "",
	"internal/boottime":   "nowait",
	"internal/nowait":     "",
	"internal/command":    "harden procinfo",
	"internal/fencer":     "command secretfile suggest workenv",
	"internal/filelock":   "procinfo secretfile",
	"internal/hook":       "command",
	"internal/probe":      "command",
	"internal/procinfo":   "",
	"internal/secretfile": "",
	"internal/statedir":   "filelock secretfile",
	"internal/support":    "",
	"internal/suggest":    "",
	"internal/workenv":    "",

	// Demo and tests.
	"internal/test/zkserver": "",
	"internal/faultproxy":    "",
	"internal/hostfault":     "",
	"internal/testhelper":    "",
	"internal/arch":          "",
	"internal/sim":           "",
	"internal/test/record":   "",
	"internal/faults":        "",
	"internal/recipes":       "",
	"internal/vmtest":        "",
	"internal/vmtest/guest":  "",
}

func TestImportArrows(t *testing.T) {
	all := packages(t)
	for name, p := range all {
		if !strings.HasPrefix(name, "internal/") {
			continue
		}
		allowed, known := arrows[name]
		if !known {
			t.Errorf("%s has no place in the layout: add it to arrows", name)
		}
		for _, dep := range p.Imports {
			if to, ours := strings.CutPrefix(dep, "zkelectd/internal/"); ours && !slices.Contains(strings.Fields(allowed), to) {
				t.Errorf("%s imports internal/%s; it may import only: %s", name, to, allowed)
			}
		}
	}
	for name := range arrows {
		if _, ok := all[name]; !ok {
			t.Errorf("%s does not exist", name)
		}
	}
}

// Of the commands only run runs a host; none of them reaches into it.
func TestImportArrowsOfTheCommands(t *testing.T) {
	only := map[string][]string{
		"internal/host":          {"run.go", "exec_daemon.go", "daemon_settings.go", "reload.go", "reload_socket.go"},
		"internal/group":         {},
		"internal/worker":        {},
		"internal/transition":    {},
		"internal/watchdog":      {},
		"internal/systemd":       {},
		"internal/test/zkserver": {},
		"internal/page":          {},
		"internal/faultproxy":    {},
		"internal/hostfault":     {},
		"internal/testhelper":    {},
	}
	files, err := filepath.Glob("../../cmd/zkelectd/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no commands")
	}
	for _, path := range files {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			dep, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if places, limited := only[strings.TrimPrefix(dep, "zkelectd/")]; limited && !slices.Contains(places, name) {
				t.Errorf("%s imports %s, which only %v may", name, dep, places)
			}
		}
	}
}
