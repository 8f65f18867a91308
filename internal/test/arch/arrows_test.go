package arch

import (
	"slices"
	"strings"
	"testing"
)

// arrows lists the packages of this module that each package may import; tests may import more. The core knows no shell, the
// group knows no configuration file, and the host puts the parts together.
var arrows = map[string]string{
	// The core: pure.
	"internal/cluster":             "",
	"internal/cluster/renewal":     "cluster transition",
	"internal/policy":              "cluster sys/suggest",
	"internal/elector":             "cluster policy",
	"internal/transition/failsafe": "cluster",
	"internal/transition":          "cluster transition/failsafe",
	"internal/watchdog":            "cluster",
	"internal/elector/termlog":     "cluster",
	"internal/elector/whatif":      "cluster elector policy watchdog",
	"internal/operator/request":    "cluster elector/whatif policy sys/suggest",

	// Failsafe mode.
	"internal/failsafe/peer":  "",
	"internal/failsafe/agent": "cluster failsafe/peer operator/status sys/statedir transition/failsafe",

	// ZooKeeper.
	"internal/zk":              "cluster cluster/renewal transition sys/boottime sys/nowait sys/secretfile zk/sasl",
	"internal/zk/sasl":         "sys/secretfile",
	"internal/store":           "cluster sys/suggest zk",
	"internal/store/storetest": "cluster cluster/renewal transition",

	// The program. The commands reach the host only through the daemon, but for what a reload is asked and answers.
	"internal/cli":    "cluster config daemon elector elector/whatif guard host host/hostcheck operator operator/doctor operator/losses operator/request operator/status policy store sys/asynclog sys/procinfo sys/secretfile web work/admission work/fencer work/oneshot zk",
	"internal/daemon": "cluster config guard host operator operator/status store sys/asynclog sys/harden sys/secretfile web work/hook work/oneshot zk",

	// One daemon.
	"internal/host":           "cluster config elector elector/whatif failsafe/agent failsafe/peer group group/electing guard host/hostcheck operator operator/losses operator/request operator/status policy store sys/boottime sys/statedir sys/watchdogdev transition/failsafe work/applease work/command work/fencer work/hook work/probe work/systemd work/workenv work/worker zk",
	"internal/host/hostcheck": "config work/admission",
	"internal/group":          "cluster elector group/electing guard operator/status policy store sys/boottime sys/procinfo transition transition/failsafe watchdog work/applease work/fencer work/hook work/workenv work/worker zk",
	"internal/group/electing": "cluster elector elector/termlog operator/status policy sys/boottime watchdog zk",
	"internal/work/worker":    "cluster guard sys/procinfo transition work/admission work/command work/fencer work/hook work/probe work/systemd work/workenv",
	"internal/config":         "cluster policy sys/secretfile sys/suggest work/probe work/workenv",

	// Jobs that run once.
	"internal/work/oneshot": "cluster",

	// Applications.
	"internal/work/applease": "sys/boottime",

	// The guard, and what it needs.
	"internal/guard":           "sys/boottime sys/filelock sys/harden sys/nowait sys/procinfo sys/secretfile sys/watchdogdev",
	"internal/sys/harden":      "sys/nowait",
	"internal/work/admission":  "guard work/systemd work/workenv",
	"internal/work/systemd":    "",
	"internal/sys/watchdogdev": "",

	// Operators.
	"internal/operator":        "cluster config elector elector/whatif operator/losses operator/request operator/status policy store work/fencer work/hook work/workenv zk zk/sasl",
	"internal/operator/status": "cluster operator/losses policy sys/suggest",
	"internal/operator/doctor": "cluster operator/status sys/suggest",
	"internal/operator/losses": "cluster",
	"internal/web":             "cluster elector/whatif operator/request operator/status sys/boottime sys/procinfo sys/secretfile web/page work/applease",
	"internal/web/page":        "",

	// Tools.
	"internal/sys/asynclog":   "",
	"internal/sys/boottime":   "sys/nowait",
	"internal/sys/nowait":     "",
	"internal/work/command":   "sys/harden sys/procinfo",
	"internal/work/fencer":    "sys/secretfile sys/suggest work/command work/workenv",
	"internal/sys/filelock":   "sys/procinfo sys/secretfile",
	"internal/work/hook":      "work/command",
	"internal/work/probe":     "cluster work/command",
	"internal/sys/procinfo":   "",
	"internal/sys/secretfile": "",
	"internal/sys/statedir":   "sys/filelock sys/secretfile",
	"internal/sys/suggest":    "",
	"internal/work/workenv":   "",

	// Demo and tests.
	"internal/test/zkserver":     "",
	"internal/test/faultproxy":   "",
	"internal/test/kdc":          "test/zkserver",
	"internal/test/hostfault":    "",
	"internal/test/process":      "",
	"internal/test/testhelper":   "",
	"internal/test/arch":         "",
	"internal/test/sim":          "",
	"internal/test/record":       "",
	"internal/test/faults":       "",
	"internal/test/recipes":      "",
	"internal/test/clients":      "",
	"internal/test/vmtest":       "",
	"internal/test/vmtest/guest": "",
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
