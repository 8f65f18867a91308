package zk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseEnsembleConfig(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "server.%d=h%d:2888:3888;2181\n", i, i)
		}
		return b.String() + "version=1"
	}
	for name, c := range map[string]struct {
		data    string
		version uint64
		servers []string
		err     string
	}{
		"three": {"server.1=10.0.0.1:2888:3888:participant;10.0.0.1:2181\nserver.2=zk2:2888:3888:participant;zk2:2182\n" +
			"server.3=zk3:2888:3888:observer;zk3:2181\nversion=10000000a", 0x10000000a, []string{"10.0.0.1:2181", "zk2:2182", "zk3:2181"}, ""},
		"every address": {"server.1=zk1:2888:3888:participant;0.0.0.0:2181\nserver.2=zk2:2888:3888;2181\nserver.3=[fd00::3]:2888:3888;[::]:2181\n" +
			"server.4=0.0.0.0:2888:3888:participant;0.0.0.0:2181\nserver.5=[::ffff:0.0.0.0]:1:2;2181\nversion=0", 0, []string{"zk1:2181", "zk2:2181", "[fd00::3]:2181"}, ""},
		"IPv6":              {"server.1=[fd00::1]:2888:3888:participant;[fd00::2]:2181\r\nversion=ff\r\n", 255, []string{"[fd00::2]:2181"}, ""},
		"several addresses": {"server.1=zk1a:2888:3888|zk1b:2889:3889:participant;2181\nversion=1", 1, []string{"zk1a:2181"}, ""},
		"no clients":        {"server.1=zk1:2888:3888:participant\nserver.2=zk2:2888:3888;\nversion=1", 1, nil, ""},
		"twice":             {"server.1=a:1:2;2181\nserver.2=a:3:4;a:2181\nversion=1", 1, []string{"a:2181"}, ""},
		"other lines":       {"group.1=1:2\nweight.1=5\n# server.9=x:1:2;2181\nserver.1=a:1:2;2181\nversion=1", 1, []string{"a:2181"}, ""},
		"garbage": {"server.1=;\nserver.2=a:1:2;b:0\nserver.3=a:1:2;b:99999\nserver.4=a:1:2;b c:2181\nserver.5=a:1:2;b/../c:2181\nserver.6=a:1:2;\x1b[2J:2181\n" +
			"server.7\nserver.11=a:1:2;[fe80::1%\x1bc]:2181\nserver.8=[:2181;2181\nserver.9=a:1:2;-1\nserver.10=" + strings.Repeat("x", 254) + ":1:2;2181\n=\nversion=1", 1, nil, ""},
		"empty":               {"", 0, nil, "has no version"},
		"no version":          {"server.1=a:1:2;2181", 0, nil, "has no version"},
		"not a version":       {"server.1=a:1:2;2181\nversion=x", 0, nil, "no valid version"},
		"a negative version":  {"version=-1", 0, nil, "no valid version"},
		"as many as may be":   {many(maxEnsembleServers), 1, nil, ""},
		"too many":            {many(maxEnsembleServers + 1), 0, nil, "names more than 64 servers"},
		"huge":                {strings.Repeat("x", maxEnsembleConfig) + "\n", 0, nil, "bytes, more than 65536"},
		"the greatest number": {"version=ffffffffffffffff", 1<<64 - 1, nil, ""},
	} {
		got, err := ParseEnsembleConfig([]byte(c.data))
		if c.err != "" {
			if contains(t, err, c.err); got.Servers != nil || got.Version != 0 {
				t.Errorf("%s: %+v with an error", name, got)
			}
			continue
		}
		if err != nil || got.Version != c.version || name != "as many as may be" && !slices.Equal(got.Servers, c.servers) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
