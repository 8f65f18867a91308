package daemon

import (
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
)

// A host leaves if another one runs the job. If it does not learn who does, it says so in the end.
func TestExecFindsOutWhoRunsTheJob(t *testing.T) {
	t.Parallel()
	d := &job{}
	d.cfg.ZooKeeper.Root, d.cfg.Node.ID = "/j", "n1"
	paths := cluster.Paths{Root: "/j"}
	current := func(node, state string) string {
		return fmt.Sprintf(`{"v":1,"term":7,"node":%q,"state":%q}`, node, state)
	}
	for name, c := range map[string]struct {
		current     string
		early, late string
	}{
		"nobody":       {"", "", "no host was elected within 30s"},
		"another":      {current("n2", "READY"), "n2 runs the job", "n2 runs the job"},
		"another soon": {current("n2", "PROGRESS"), "", "n2 runs the job"},
		"this host":    {current("n1", "PROGRESS"), "", ""},
		"damaged":      {"{", "", "it is not known which hosts run it: "},
		"a copy":       {current("n2", "READY"), "", "it is not known which hosts run it: "},
	} {
		conn := storetest.NewServer().Connect()
		if err := store.EnsureTree(t.Context(), conn, paths); err != nil {
			t.Fatal(err)
		}
		if c.current != "" {
			fence := cluster.Fence{Term: 7, State: cluster.FenceReady, Session: conn.SessionID()}
			_, err := conn.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: paths.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&fence)},
				cluster.Op{Kind: cluster.OpCreate, Path: paths.Current(), Data: []byte(c.current), Ephemeral: name != "a copy"})
			if err != nil {
				t.Fatal(err)
			}
		}
		for late, want := range map[bool]string{false: c.early, true: c.late} {
			r := d.whyNot(t.Context(), conn, late)
			if got := r.Skipped + r.Failed; !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s, late %v: %q, want %q", name, late, got, want)
			}
		}
	}
}
