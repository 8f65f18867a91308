package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a record of the same root and of all servers lets a host create a group.
func TestOnlyTheOwnRecordLetsAHostCreateAGroup(t *testing.T) {
	dir := t.TempDir()
	const root = "/groups/billing"
	at := func(root, servers string) *resource {
		cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT="+root, "ZKELECTD_ZOOKEEPER_SERVERS="+servers,
			"ZKELECTD_CHILD_NONE=true", "ZKELECTD_NODE_STATE_DIR="+dir)
		return New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient}).resources()[0]
	}
	may := func(r *resource) bool { return r.missing() == nil }
	own := at(root, "zk1:2181,zk2:2181")
	if may(own) {
		t.Error("a host that was never in the group may create it")
	}
	own.recordJoined()
	if !may(at(root, "zk2:2181")) {
		t.Error("a host that was in the group may not create it on one of the servers")
	}
	if may(at(root, "zk2:2181,zk3:2181")) || may(at("/groups/biling", "zk1:2181")) {
		t.Error("the record counts for another root, or for other servers")
	}
	recorded, err := os.ReadFile(filepath.Join(dir, joinedFile(root)))
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(dir, joinedFile("/groups/other"))
	for text, mode := range map[string]os.FileMode{string(recorded): 0o600, "{": 0o600, `{"root": "/groups/other", "servers": ["zk1:2181"]}`: 0o666} {
		if err := os.WriteFile(forged, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(forged, mode); err != nil {
			t.Fatal(err)
		}
		switch missing := at("/groups/other", "zk1:2181").missing(); {
		case missing == nil:
			t.Errorf("%s with mode %o lets the host create the group", text, mode)
		case text != string(recorded) && !strings.Contains(missing.Error(), "its record cannot be read: "+forged):
			t.Errorf("%s with mode %o: %v", text, mode, missing)
		}
	}
}
