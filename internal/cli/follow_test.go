package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/test/faultproxy"
)

// Commands that follow a group outlive their session, and an ensemble that is away; they say since when they are not live.
func TestFollowersOutliveTheirSession(t *testing.T) {
	t.Parallel()
	server, f, proxy := ownServer(t)
	sessions := func() int64 {
		stats, err := server.Stats(t.Context())
		if err != nil {
			return -1
		}
		return stats["zk_global_sessions"]
	}
	before := sessions()
	commands := map[string][]string{
		"status": {"status", "--watch"}, "json": {"status", "--watch", "-o", "json"}, "history": {"history", "--follow"},
	}
	first := map[string]string{"status": "Leader   none", "json": `"state": "NONE"`, "history": "LEADERLESS"}
	for name, args := range commands {
		args = append(args, "--zk", fmt.Sprintf("127.0.0.1:%d", proxy.Port()), "--root", f.paths.Root, "--session-timeout", "2s")
		p := f.startCommand(name, exec.Command("zkelectd", args...))
		f.eventually(name+" shows the group", func() bool { return strings.Contains(p.Output(), first[name]) })
	}
	away := func(times int, how string, fail, restore func()) {
		t.Helper()
		count := func(text string, n int) func(string) bool {
			return func(name string) bool { return strings.Count(f.daemons[name].Output(), text) == n }
		}
		all := func(what string, ok func(string) bool) {
			t.Helper()
			for name := range commands {
				f.eventually(fmt.Sprintf("%s, %s: %s", how, name, what), func() bool { return ok(name) })
			}
		}
		fail()
		all("it is not live", count("not live since ", times))
		restore()
		all("it is live again", count("live again, after ", times))
		f.eventually(how+": the gap is marked, and the current state follows", func() bool {
			return strings.Count(f.daemons["json"].Output(), first["json"]) == 1+times
		})
		if out := f.daemons["json"].Output(); strings.Count(out, `"event": "gap"`) != times || strings.LastIndex(out, `"gap"`) > strings.LastIndex(out, first["json"]) {
			t.Errorf("%s: %s", how, out)
		}
	}
	away(1, "the session expires", func() {
		proxy.SetMode(faultproxy.Refuse)
		f.eventually("the sessions have expired", func() bool { return sessions() == before })
	}, func() { proxy.SetMode(faultproxy.Pass) })
	away(2, "nothing gets through", func() { proxy.SetMode(faultproxy.BlackHole) }, func() {
		proxy.SetMode(faultproxy.Pass)
		proxy.Reset(true)
	})
	away(3, "the server is down", server.Kill, func() {
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	past := cluster.History{Terms: []cluster.PastTerm{{Term: 7, Node: "somebody", Time: time.Now()}}}
	f.eventually("the history is written", func() bool { // the session of the test may not be connected again yet
		_, err := f.session.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: f.paths.History(), Data: cluster.EncodeHistory(&past)})
		return err == nil || errors.Is(err, cluster.ErrNodeExists)
	})
	f.eventually("a new term is shown", func() bool { return strings.Contains(f.daemons["history"].Output(), "somebody") })
	// An interrupt ends a follower at once, also while ZooKeeper is away.
	end := func(name string) {
		t.Helper()
		f.daemons[name].Signal(syscall.SIGINT)
		if status := f.exit(name); status != 0 {
			t.Errorf("%s ends with status %d", name, status)
		}
	}
	end("history")
	proxy.SetMode(faultproxy.BlackHole)
	for _, name := range []string{"status", "json"} {
		f.eventually(name+" is not live", func() bool { return strings.Count(f.daemons[name].Output(), "not live since ") == 4 })
		end(name)
	}
}

// A request that is not carried out in time says what was read last, if anything was.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	for last, want := range map[string]string{
		"":                       "not done after 1s (--timeout); the request stays in force",
		"n1 is READY in term 17": "not done after 1s (--timeout); the request stays in force (n1 is READY in term 17)",
	} {
		if err := unfinished(t.Context(), group{}, request.Plan{}, time.Second, last); err.Error() != want {
			t.Error(err)
		}
	}
}
