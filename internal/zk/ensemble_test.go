package zk

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

// A majority of the servers must be of the ensemble of the session: of two, a foreign or a silent one is too many.
func TestCheckEnsemble(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	const nobody = "127.0.0.1:1"
	own, foreign := e.Addrs(), shared.Addr()
	for name, c := range map[string]struct {
		servers []string // the session is connected to the first
		doubt   string
	}{
		"the only server":                     {own[:1], ""},
		"all of an ensemble":                  {own, ""},
		"one of three does not answer":        {[]string{own[0], own[1], nobody}, ""},
		"one of three is foreign":             {[]string{own[0], own[1], foreign}, ""},
		"a server by a name":                  {[]string{strings.Replace(own[2], "127.0.0.1", "localhost", 1)}, ""}, // which may have an address of IPv6, too
		"one of two is foreign":               {[]string{own[0], foreign}, foreign + ": it is of another ensemble"},
		"one of two does not answer":          {[]string{own[0], nobody}, nobody + ": dial tcp"},
		"connected to the foreign one":        {[]string{foreign, own[0], own[1]}, "only 1 of 3 servers are known to be of one ensemble with " + foreign},
		"foreign, and the rest is lost":       {[]string{foreign, nobody, "127.0.0.1:2"}, "only 1 of 3 servers"},
		"one server, given several times":     {[]string{own[0], own[0], own[0]}, ""},
		"a foreign one, and a lost one twice": {[]string{foreign, nobody, nobody}, "only 1 of 2 servers"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Servers: c.servers[:1]})
			s.SetServers(c.servers)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := s.CheckEnsemble(ctx)
			if (err == nil) != (c.doubt == "") || err != nil && !strings.Contains(err.Error(), c.doubt) {
				t.Errorf("%v, want %q", err, c.doubt)
			}
			here, others, err := s.ForeignServers(ctx)
			var want []string
			for _, server := range c.servers {
				if (server == foreign) != (here == foreign) && !strings.HasSuffix(server, ":1") && !strings.HasSuffix(server, ":2") {
					want = append(want, server)
				}
			}
			slices.Sort(want)
			if err != nil || here != c.servers[0] || !slices.Equal(others, want) {
				t.Errorf("%s and %v are of different ensembles, want %v: %v", here, others, want, err)
			}
			if _, _, err := s.Get(ctx, "/", false); err != nil || s.Reconnects() != 0 {
				t.Errorf("the session was disturbed: %v, %d reconnects", err, s.Reconnects())
			}
		})
	}
}

// A session avoids a server: it is connected to another one as long as one serves.
func TestAvoidedServer(t *testing.T) {
	t.Parallel()
	other := zkserver.ForTest(t, zkserver.Options{})
	for range 8 { // in any order, it would be the first in half of them
		s := open(t, Options{Servers: []string{shared.Addr(), other.Addr()}, Avoid: shared.Addr()})
		if here, _, err := s.ForeignServers(t.Context()); err != nil || here != other.Addr() {
			t.Errorf("connected to %s, %v", here, err)
		}
	}
	if s := open(t, Options{Avoid: shared.Addr()}); !s.Connected() {
		t.Error("not connected to the only server")
	}
}
