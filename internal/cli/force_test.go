package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// strand starts a, kills it once it leads, and makes its fence say that members that no longer exist have promised to let nobody take over. It returns
// the term.
func (f *fleet) strand() int64 {
	f.t.Helper()
	f.configure("a", "dc1", 100, "zookeeper: {session_timeout: 4s, acl: private}\n")
	f.configure("b", "dc1", 99, "zookeeper: {session_timeout: 4s, acl: private}\n")
	f.start("a")
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	f.eventually("a history", func() bool { _, _, err := f.session.Get(f.t.Context(), f.paths.History(), false); return err == nil })
	f.failsWith("there is a leader or a candidate", "force")
	child := f.child("a")
	f.crash("a")
	f.waitForDeath(child)
	f.eventually("the end of a's session", func() bool { s := f.snapshot(); return !s.Current.Exists && len(s.Members) == 0 })
	f.failsWith("nobody has promised anything to a", "force")
	snap := f.snapshot()
	fence := snap.Fence.Record
	fence.Failsafe = &cluster.Failsafe{Key: "key-a", Members: []cluster.FailsafeMember{{ID: "c", Incarnation: "c-0000000000000001-n_0000000099", Key: "key-c"}}}
	f.write(cluster.Op{Kind: cluster.OpSet, Path: f.paths.Leader(), Version: snap.Fence.Stat.Version, Data: cluster.Encode(&fence)})
	return fence.Term
}

// A group whose last leader and members in failsafe mode are lost for good elects a leader only once a person has said that they are off.
func TestForce(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	term := f.strand()
	f.start("b")
	f.until("b is elected", func(g status.Group) bool { return g.Term > term })
	name := f.paths.Root[strings.LastIndex(f.paths.Root, "/")+1:]
	word := fmt.Sprintf("%s:%d", name, term)
	before := f.snapshot().Fence.Stat.Version
	for want, args := range map[string][]string{
		"unknown flag: --yes":                 {"--yes"},
		"or add --confirm " + word:            {},
		"nothing was done: --confirm must be": {"--confirm", fmt.Sprintf("%s:%d", name, term+1)},
		"more than 500":                       {"--reason", strings.Repeat("x", 501), "--confirm", word},
	} {
		f.failsWith(want, append([]string{"force"}, args...)...)
	}
	out, err := f.run("force", "--dry-run")
	host, _ := os.Hostname()
	for _, want := range []string{"may still work in failsafe mode", "a, the leader (host " + host + "): not registered", "c: not registered", "these hosts must be powered off", ": a, c."} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: lacks %q\n%s", err, want, out)
		}
	}
	if out, err := f.runUnauthorized("force", "--confirm", word); err == nil {
		t.Errorf("without credentials: %s", out)
	}
	if s := f.snapshot(); s.Fence.Stat.Version != before || s.Current.Exists {
		t.Errorf("the fence was changed, or b leads: %+v", s.Fence)
	}
	if out, err := f.run("force", "--reason", "rack 7 has burned down", "--confirm", word); err != nil || !strings.Contains(out, "done: the members of") || strings.Contains(out, "no entry") {
		t.Fatalf("%v\n%s", err, out)
	}
	f.until("b leads", leads("b"))
	f.waitForWork("b")
	if out, err := f.run("history"); err != nil || !strings.Contains(out, "has declared that no work of this term is left: rack 7 has burned down]") {
		t.Errorf("%v\n%s", err, out)
	}
	if exclusions := f.snapshot().Elected.Record.Exclusions; len(exclusions) > 0 {
		t.Errorf("strikes: %+v", exclusions)
	}
	f.failsWith("there is a leader or a candidate", "force", "--confirm", word)
	f.checkInvariants()
}

func TestFailsafeKeysAreRotated(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	if err := store.Init(t.Context(), f.session, f.paths, "the test"); err != nil {
		t.Fatal(err)
	}
	f.failsWith("does not exist: the first daemon in failsafe mode creates it", "acl", "--rotate-keys")
	if _, err := store.EnsureFailsafeKeys(t.Context(), f.session, f.paths, "a"); err != nil {
		t.Fatal(err)
	}
	keys := func() cluster.Stored[cluster.FailsafeKeys] {
		data, stat, err := f.session.Get(t.Context(), f.paths.FailsafeKeys(), false)
		return cluster.ReadStored[cluster.FailsafeKeys](f.paths.FailsafeKeys(), data, stat, err == nil)
	}
	first := keys()
	f.failsWith("members may not have read it yet: wait until it is 1m0s old", "acl", "--rotate-keys")
	aged := first.Record
	aged.Keys = []cluster.FailsafeKey{{Secret: first.Record.Keys[0].Secret, Time: time.Now().Add(-time.Hour)}}
	f.write(f.paths.FailsafeKeysTx(first, aged)...)
	if out, err := f.run("acl", "--rotate-keys"); err != nil || !strings.Contains(out, "has a new key") {
		t.Errorf("%v\n%s", err, out)
	}
	if got := keys().Record.Secrets(); len(got) != 2 || string(got[1]) != string(first.Record.Keys[0].Secret) {
		t.Errorf("%d keys, without the last one", len(got))
	}
	if out, err := f.runUnauthorized("acl", "--rotate-keys"); err == nil {
		t.Errorf("without credentials: %s", out)
	}
}
