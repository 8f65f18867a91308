package host

import (
	"fmt"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// A host with many groups publishes its latency and how much it leads once, and its electors rank by that.
func TestLoadIsPublishedOnce(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 2)
	for i := range 2 {
		f.until(fmt.Sprint("g", i), "leads", status.Daemon.Leads)
	}
	conn := initialSession(t)
	var load cluster.Stored[cluster.Load]
	var owner int64
	wait(t, "the load is published", func() bool {
		path := cluster.Loads(base) + "/a"
		data, stat, err := conn.Get(t.Context(), path, false)
		load, owner = cluster.ReadStored[cluster.Load](path, data, stat, err == nil), stat.Owner
		return load.Readable() && load.Record.Leaders == 2 && load.Record.Latency != nil
	}, func() string { return fmt.Sprintf("the load is %+v", load) })
	if owner == 0 {
		t.Error("the load does not end with the session")
	}
	path := base + "/g0/nodes/a"
	data, stat, err := conn.Get(t.Context(), path, false)
	if n := cluster.ReadStored[cluster.Node](path, data, stat, err == nil); !n.Readable() || n.Record.Latency != nil {
		t.Errorf("the record of the node is %+v", n)
	}
	if f.Host.loads.Load().known.Load() != nil {
		t.Error("it reads the loads although no policy needs them")
	}

	f.write("g0", work+"policy: {type: latency}\n")
	f.Reload()
	latency := func(name string) *float64 {
		s, err := f.group(name).State(t.Context())
		if err != nil || len(s.Members) != 1 {
			return nil
		}
		return s.Members[0].Latency
	}
	wait(t, "the elector knows the latency", func() bool { return latency("g0") != nil })
	if latency("g1") != nil {
		t.Error("a group whose policy does not need it has read it")
	}
}
