package host

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// A host follows a reconfiguration to servers that have its group, and to no other one, whatever the znode says. It
// forgets those that the ensemble does not have any more, ignores an older version, and keeps what the configuration
// names.
func TestFollowOnlyServersWithTheGroup(t *testing.T) {
	own := zkserver.ForTest(t, zkserver.Options{Java: []string{"-Dzookeeper.skipACL=yes"}})
	const nobody = "127.0.0.1:1"
	root, dir := fresh(), t.TempDir()
	s, err := zk.Open(t.Context(), zk.Options{Servers: []string{own.Addr()}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	write := func(version int, servers ...string) {
		t.Helper()
		var b strings.Builder
		for i, server := range servers {
			fmt.Fprintf(&b, "server.%d=127.0.0.1:1:2:participant;%s\n", i+1, server)
		}
		fmt.Fprintf(&b, "version=%x", version)
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: zk.EnsemblePath, Data: []byte(b.String()), Version: cluster.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	named := strings.Replace(own.Addr(), "127.0.0.1", "localhost", 1)
	write(7, named, server.Addr(), nobody, "0.0.0.0:2181", "x y:1")
	var ignored atomic.Bool
	log := slog.New(groupLog{see: func(_ string, r slog.Record) {
		if strings.HasPrefix(r.Message, "ignored an older configuration") {
			ignored.Store(true)
		}
	}})
	h, _ := runWith(t, root, "a", func(h *Host) { h.opt.Create, h.opt.StateDir, h.log = true, dir, log },
		"ZKELECTD_ZOOKEEPER_SERVERS="+own.Addr(), "ZKELECTD_ZOOKEEPER_FOLLOW=true", "ZKELECTD_CHILD_NONE=true")
	until(t, h, "a leads", status.Daemon.Leads)
	uses := func(what string, followed ...string) {
		t.Helper()
		want := append([]string{own.Addr()}, followed...)
		wait(t, what, func() bool {
			h.mu.Lock()
			session := h.session
			h.mu.Unlock()
			recorded, err := h.resources()[0].readJoined()
			return session != nil && slices.Equal(h.servers(), want) && slices.Equal(session.zk.Servers(), want) && err == nil && slices.Equal(recorded.Followed, followed)
		}, func() string { return fmt.Sprint(h.servers()) })
	}
	uses("the server with the group is used, and no other", named)
	write(6)
	wait(t, "an older version is ignored", ignored.Load)
	uses("the newer one stays", named)
	write(8, server.Addr(), nobody)
	uses("a server that has left is not used any more")
	write(9, own.Addr(), named)
	uses("one that comes back is used again", named)
	restarted := New(h.opt)
	if got := restarted.servers(); !slices.Equal(got, []string{own.Addr(), named}) {
		t.Errorf("after a restart: %s", got)
	}
	if !restarted.forgetFollowed(named) || restarted.forgetFollowed(own.Addr()) || !slices.Equal(restarted.servers(), []string{own.Addr()}) {
		t.Errorf("a server that leads elsewhere now is used: %s", restarted.servers())
	}
	if v := h.View(); !v.Leads() || h.session.zk.Reconnects() != 0 {
		t.Errorf("the leader was disturbed: %+v", v)
	}
	// The version may go back with the ensemble's data, which ends all sessions.
	write(5, own.Addr())
	if err := zk.CloseSession(t.Context(), h.session.zk.Handle()); err != nil {
		t.Fatal(err)
	}
	uses("the next session follows an older version")
}
