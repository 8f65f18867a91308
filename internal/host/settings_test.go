package host

import (
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/zk"
)

// live holds the settings that a running host uses, and applies on a reload.
type live struct {
	group    group.Settings
	access   zk.Access
	servers  []string
	follow   bool
	logLevel string
	// These are read for each run.
	leaderHook, proposalHook []string
}

func liveSettings(c config.Config) live {
	return live{groupSettings(c, false), operator.Access(c, os.Getenv), c.ZooKeeper.Servers, c.ZooKeeper.Follow, c.Log.Level, c.Hooks.OnLeaderChange, c.Hooks.OnProposal}
}

// A setting that a reload is documented to apply changes what a running host uses. One that is documented to need a restart
// does not: config.ApplyReload keeps it.
func TestReloadAppliesWhatTheKeysSay(t *testing.T) {
	// With these values, all parts of the policy have an effect.
	base, err := config.Load(config.Sources{Env: []string{"ZKELECTD_NODE_ID=a", "ZKELECTD_POLICY_TYPE=exec", "ZKELECTD_POLICY_EXEC=true",
		"ZKELECTD_POLICY_FAILBACK=30s", "ZKELECTD_HTTP_LISTEN=10.0.0.1:80", "ZKELECTD_FAILSAFE_ENABLED=true"}})
	if err != nil {
		t.Fatal(err)
	}
	committed := map[string]bool{
		"http.token_file": true, "http.allowed_hosts": true, // by Reloaded.Commit
	}
	for _, k := range config.Keys() {
		next := base
		field := k.Field(&next)
		if i := slices.IndexFunc(k.Values, func(value string) bool { return value != field.String() }); i >= 0 {
			field.SetString(k.Values[i])
		} else {
			testhelper.Alter(field)
		}
		changed, restart := config.Diff(base, next)
		if len(changed)+len(restart) != 1 {
			t.Fatalf("%s was not altered alone: %v %v", k.Name, changed, restart)
		}
		applied := !reflect.DeepEqual(liveSettings(config.ApplyReload(base, next)), liveSettings(base))
		if want := k.Reload && !committed[k.Name]; applied != want {
			t.Errorf("%s: a reload applies it: %t, want %t", k.Name, applied, want)
		}
	}
}

// The lease and the silence that are configured reach a host's leaderships, its device and its deputies.
func TestLeaseOfAHost(t *testing.T) {
	cfg := load(t, "ZKELECTD_ZOOKEEPER_ROOT=/g", "ZKELECTD_CHILD_NONE=true", "ZKELECTD_ELECTION_LEASE=1s", "ZKELECTD_ELECTION_LOST_AFTER=3s", "ZKELECTD_WATCHDOG_DEVICE_MODE=automatic")
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	b, err := (&session{host: h, base: 6 * time.Second, granted: 8 * time.Second}).budget(h.resources()[0])
	if err != nil || b.Lease != time.Second || b.Session != 8*time.Second || h.device.lease != time.Second {
		t.Errorf("%+v, %v; the device fits a lease of %s", b, err, h.device.lease)
	}
	if got := h.Groups()[0].instanceOptions().LostAfter; got != 3*time.Second {
		t.Errorf("a deputy waits for %s", got)
	}
	if _, err := (&session{host: h, base: 2 * time.Second, granted: 8 * time.Second}).budget(h.resources()[0]); err == nil ||
		!strings.Contains(err.Error(), "election.lease: 1s is too long for a session timeout of 2s") || !strings.Contains(err.Error(), "computed from 2s, not from the granted 8s") {
		t.Errorf("%v", err)
	}
}
