package zk

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestInspectServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	info, err := InspectServer(ctx, Access{}, shared.Addr(), shared.Addr(), 6*time.Second)
	if err != nil || info.StatusErr != nil || info.Mode != "standalone" || !strings.HasPrefix(info.Version, "3.") || strings.Contains(info.Version, "-") {
		t.Fatalf("%+v, %v", info, err)
	}
	if info.Granted <= 0 || info.Connect <= 0 || info.Open <= 0 || info.Close <= 0 {
		t.Errorf("%+v", info)
	}
}

// A server that accepts connections and says nothing is not one that serves sessions, and costs no more than the limit.
func TestInspectSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := InspectServer(ctx, Access{}, l.Addr().String(), l.Addr().String(), 6*time.Second); err == nil {
		t.Error("a silent server serves sessions")
	}
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Zookeeper version: 3.8.0-5a02a05e, built on 2022-02-25\nLatency min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n": "3.8.0 follower <nil>",
		"ClickHouse Keeper version: v21.11.1.1-prestable-7a4a0b0e\nLatency min/avg/max: 0/0/0\nMode: leader\nNode count: 4\n":   "ClickHouse Keeper v21.11.1.1 leader <nil>",
		"srvr is not executed because it is not in the whitelist.\n":                                                            "  the server does not permit the command srvr (4lw.commands.whitelist)",
		"This ZooKeeper instance is not currently serving requests\n":                                                           "  the server does not answer the command srvr",
		"": "  the server does not answer the command srvr",
	} {
		version, mode, err := parseStatus(text)
		got := version + " " + mode + " <nil>"
		if err != nil {
			got = version + " " + mode + " " + err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A proof is by the clock of the server, and leaves nothing behind.
func TestProveWrite(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	p := cluster.Paths{Root: "/prove-write"}
	ensureTree(t, s, p)
	before, _, err := s.Children(t.Context(), p.Root, false)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := s.ProveWrite(t.Context(), p)
	if err != nil || proof.Time.Before(proof.Sent.Add(-time.Second)) || proof.Time.After(proof.Answered.Add(time.Second)) {
		t.Errorf("%+v, %v", proof, err)
	}
	if after, _, err := s.Children(t.Context(), p.Root, false); err != nil || len(after) != len(before) {
		t.Errorf("%v, %v, before %v", after, err, before)
	}
	if _, err := s.ProveWrite(t.Context(), cluster.Paths{Root: "/nowhere"}); err == nil {
		t.Error("a write without a group succeeds")
	}
}
