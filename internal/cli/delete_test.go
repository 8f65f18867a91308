package cli

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A retired group is forgotten once it is deleted, which is refused while a daemon is in it and while its work may still run.
func TestDeleteOfAGroup(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing", "mail")
	billing := e.fleets["billing"]
	billing.join("n1", "n2")
	e.fleets["mail"].join("n1")
	remove := []string{"group", "delete", "-g", "billing", "--yes"}
	e.fails(statusRefused, remove, "nothing was deleted: these daemons are in the group billing: n1, n2", "billing.yaml.disabled")
	billing.stop("n2")
	billing.stop("n1")
	e.fails(statusError, []string{"group", "delete", "--yes"}, "--yes needs the name of the group: add -g")
	e.fails(statusError, []string{"group", "delete"}, "there are 2 groups below "+e.base, "billing, mail")
	e.fails(statusRefused, []string{"group", "delete", "-g", "billing"}, "the history: n1 led in term", "confirm it at a terminal, or add -g billing --yes")
	e.prints([]string{"group", "delete", "-g", "billing", "--dry-run"}, "znodes below it")
	ahead := time.Now().Add(time.Hour).Unix()
	released := cluster.Fence{Term: ahead, Node: "n1", State: cluster.FenceReleased}
	e.write(cluster.Op{Kind: cluster.OpSet, Path: e.paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&released)})
	e.prints([]string{"group", "delete", "-g", "billing", "--dry-run"}, fmt.Sprintf("\nwarning: the last term, %d, is ahead of the clock: before %s a new group",
		ahead, time.Unix(ahead+1, 0).UTC().Format(time.RFC3339)))
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
	e.fails(statusRefused, remove, "these hosts run the job nightly, or wait for it: n1. Wait until it has ended, or send SIGTERM to zkelectd exec")
	e.daemons["n1"].Signal(syscall.SIGTERM)
	e.exit("n1")
	// A host that has failed has not released.
	data, stat, err := e.session.Get(t.Context(), e.paths.Leader(), false)
	held := cluster.ReadFence(e.paths.Leader(), data, stat, err == nil)
	if !held.Readable() {
		t.Fatal(err, held.Err)
	}
	held.Record.State = cluster.FenceReady
	e.write(cluster.Op{Kind: cluster.OpSet, Path: e.paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&held.Record)})
	const again = "zkelectd exec --root %s --once-per 0s -g nightly -- true"
	advice := fmt.Sprintf(again, e.base)
	e.fails(statusRefused, remove, "nothing was deleted: ", "run '"+advice+"': it starts once that is safe")
	e.prints(strings.Fields(advice)[1:])
	e.prints(remove, "the group nightly is deleted")
	e.fails(statusError, []string{"group", "delete", "--root", e.paths.Root + "-never"}, "there is no group at "+e.paths.Root+"-never")
}

// A job with --max that has not released a slot is deleted after a run that takes the place of all slots.
func TestDeleteOfAJobWithSlots(t *testing.T) {
	t.Parallel()
	f := newLimited(t, 2)
	f.limited("n1", 2)
	f.begins("n1")
	f.release("n1")
	f.exit("n1")
	// A host that has failed has not released.
	lost := cluster.Fence{Term: time.Now().Unix(), Node: "n2", Incarnation: "n2-0000000000000001-n_0000000009", State: cluster.FenceReady}
	f.write(overwrite(f.paths.OfSlot(1).Leader(), string(cluster.Encode(&lost))))
	run := func(line string) (string, error) {
		return zkelectdWith([]string{"ZKELECTD_ZOOKEEPER_SERVERS=" + f.servers[0]}, strings.Fields(line)...)
	}
	remove := "group delete --root /groups --yes -g " + f.groupName()
	out, err := run(remove)
	hints := regexp.MustCompile(`'zkelectd ([^']*)'`).FindAllStringSubmatch(out, -1)
	if err == nil || len(hints) != 2 || !strings.Contains(out, "nothing was deleted: ") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{hints[0][1], hints[1][1], remove} {
		if out, err := run(line); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if f.exists(f.paths.Root) {
		t.Error("the group is still there")
	}
}

// A deletion warns as long as the first term of a new group would not be higher than the last one.
func TestWarningOfTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := cluster.Paths{Root: "/g"}
	for term, want := range map[int64]string{
		0:                    "",
		now.Unix() - 1:       "",
		now.Unix():           "the last term, 1800000000, is ahead of the clock: before 2027-01-15T08:00:01Z a new group",
		cluster.MaxClock - 1: "before 2262-04-11T23:47:16Z a new group",
		cluster.MaxClock:     "is ahead of any clock",
	} {
		f := cluster.Fence{Term: term, Node: "n1", State: cluster.FenceReleased}
		r := cluster.Remains{Paths: p, Znodes: []cluster.RemainingZnode{{Path: p.Leader(), Data: cluster.Encode(&f), Stat: cluster.Stat{Version: 1, Time: now}}}}
		if got := tokenWarning(r, now); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%d: %q, want %q", term, got, want)
		}
	}
}
