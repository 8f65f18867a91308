package cli

import (
	"strings"
	"syscall"
	"testing"
)

// A retired group is forgotten once it is deleted, which is refused while a daemon is in it and while its work may still run.
func TestDeleteOfAGroup(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing", "mail")
	e.join()
	billing := e.fleets["billing"]
	remove := []string{"group", "delete", "-g", "billing", "--yes"}
	e.fails(statusRefused, remove, "nothing was deleted: these daemons are in the group billing: n1, n2", "billing.yaml.disabled")
	billing.stop("n2")
	billing.stop("n1")
	e.fails(statusError, []string{"group", "delete", "--yes"}, "--yes needs the name of the group: add -g")
	e.fails(statusError, []string{"group", "delete"}, "there are 2 groups below "+e.base, "billing, mail")
	e.fails(statusRefused, []string{"group", "delete", "-g", "billing"}, "the history: n1 led in term", "confirm it at a terminal, or add -g billing --yes")
	e.prints([]string{"group", "delete", "-g", "billing", "--dry-run"}, "znodes below it")
	e.prints([]string{"status"}, "billing")
	e.prints(remove, "This is deleted for good:\n  "+billing.paths.Root+" and the ", "the group billing is deleted")
	for text, args := range map[string][]string{"mail": {"status"}, "groups=1 ready=1": {"status", "--check"}} {
		if out, _ := e.run(args...); !strings.Contains(out, text) || strings.Contains(out, "billing") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	e.fails(statusError, remove, `there is no group "billing"`)
}

// The group of a job is deleted after a run that has ended, and not while one may still run.
func TestDeleteOfAJob(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "nightly")
	remove := []string{"group", "delete", "-g", "nightly", "--yes"}
	e.exec("n1", `echo run >>"$RUNS"; sleep 1000 & wait`)
	e.eventually("the job runs", func() bool { return e.countRuns("run") == 1 })
	e.fails(statusRefused, remove, "these daemons are in the group nightly: n1")
	e.daemons["n1"].signal(syscall.SIGTERM)
	e.exit("n1")
	e.prints(remove, "the group nightly is deleted")
	e.prints([]string{"group", "delete", "--root", e.paths.Root + "-never"}, "nothing is left")
}
