package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// A group whose last leader and members in failsafe mode are lost for good elects a leader only once a person has said that they are off.
func TestForce(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	ports := freePorts(t, 3)
	f.startFailsafe(ports, "a", "b")
	f.eventually("a history", func() bool { _, _, err := f.session.Get(t.Context(), f.paths.History(), false); return err == nil })
	term := f.snapshot().Fence.Record.Term
	f.crash("b")
	f.crash("a")
	f.configure("x", "dc1", 90, fmt.Sprintf("zookeeper: {session_timeout: 4s, acl: private, auth: {file: '%s'}}\n"+
		"failsafe: {enabled: true, listen: '127.0.0.1:%d'}\n"+
		"child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 200ms}\n", filepath.Join(f.dir, "auth"), ports[2]))
	f.startSafe("x")
	f.until("x is elected", func(g status.Group) bool { return g.Term > term && g.Leader == "x" })
	for command, want := range map[string]string{
		"status":         "none of the nodes that can say otherwise is registered (a, b): start one of them",
		"status --check": "ZKELECTD CRITICAL - no leader: x is elected, and has not taken over; a may still work in failsafe mode",
		"doctor":         "none of these nodes, which can say otherwise, is registered with the state directory that it had: a, b",
	} {
		if out := f.shown(command); !strings.Contains(out, want) {
			t.Errorf("%s lacks %q\n%s", command, want, out)
		}
	}
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
	for _, want := range []string{"may still work in failsafe mode", "a, the leader (host " + host + "): not registered", "these hosts must be powered off", ": a, b."} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: lacks %q\n%s", err, want, out)
		}
	}
	if out, err := f.runUnauthorized("force", "--confirm", word); err == nil {
		t.Errorf("without credentials: %s", out)
	}
	if s := f.snapshot(); s.Fence.Stat.Version != before || s.Current.Exists {
		t.Errorf("the fence was changed, or x leads: %+v", s.Fence)
	}
	var forced forcedGroup
	out, err = f.run("force", "--reason", "rack 7 has burned down", "--confirm", word, "-o", "json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &forced)); err != nil || !forced.Forced || forced.Leader != "a" || forced.Term != term ||
		!slices.Equal(forced.Nodes, []string{"a", "b"}) || strings.Contains(out, "no entry") {
		t.Fatalf("%v\n%s", err, out)
	}
	f.until("x leads", leads("x"))
	f.waitForWork("x")
	f.succeedsWith("has declared that no work of this term is left: rack 7 has burned down]", "history")
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
	f.succeedsWith("has a new key", "acl", "--rotate-keys")
	if got := keys().Record.Secrets(); len(got) != 2 || string(got[1]) != string(first.Record.Keys[0].Secret) {
		t.Errorf("%d keys, without the last one", len(got))
	}
	if out, err := f.runUnauthorized("acl", "--rotate-keys"); err == nil {
		t.Errorf("without credentials: %s", out)
	}
}
