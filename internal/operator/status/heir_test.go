package status

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// withHeir returns a group that a leads, with what the elector has published.
func withHeir(term int64, heir *cluster.Heir, record cluster.HeirRecord) cluster.Snapshot {
	var s cluster.Snapshot
	for i, id := range []string{"a", "b", "c"} {
		s.Members = append(s.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1"}},
		})
	}
	s = s.AfterElection(cluster.Elected{Term: term, Node: "a", Site: "dc1", Incarnation: "a", Heir: heir})
	s.Heir = cluster.Stored[cluster.HeirRecord]{Exists: record.Term > 0, Record: record}
	return s
}

func TestTheStatusNamesTheHeir(t *testing.T) {
	b, c := cluster.Heir{Node: "b", Site: "dc1", Incarnation: "b"}, cluster.Heir{Node: "c", Site: "dc1", Incarnation: "c"}
	for name, test := range map[string]struct {
		snap       cluster.Snapshot
		heir, line string
	}{
		"by the decision":        {withHeir(7, &b, cluster.HeirRecord{}), "b", "Heir     b (site dc1), elected next if a is lost"},
		"by HEIR":                {withHeir(7, &b, cluster.HeirRecord{Term: 7, Heir: c}), "c", "Heir     c (site dc1), elected next if a is lost"},
		"by HEIR of an old term": {withHeir(7, &b, cluster.HeirRecord{Term: 6, Heir: c}), "b", "Heir     b (site dc1), elected next if a is lost"},
		"nobody":                 {withHeir(7, &b, cluster.HeirRecord{Term: 7}), "", "Heir     none: if a is lost, there is no leader"},
		"not published":          {withHeir(7, nil, cluster.HeirRecord{}), "", ""},
		"gone":                   {withHeir(7, &cluster.Heir{Node: "d", Incarnation: "d"}, cluster.HeirRecord{}), "", ""},
		"no leader":              {withHeir(7, &b, cluster.HeirRecord{}).Without(func(m cluster.Member) bool { return m.ID == "a" }), "", ""},
	} {
		g := Of("c", "/c", test.snap)
		line := ""
		for row := range strings.Lines(g.Table()) {
			if strings.HasPrefix(row, "Heir ") {
				line = strings.TrimSuffix(row, "\n")
			}
		}
		if g.Heir != test.heir || line != test.line {
			t.Errorf("%s: heir %q, line %q, want %q and %q", name, g.Heir, line, test.heir, test.line)
		}
		for _, m := range g.Members {
			if want := m.Node == test.heir; m.Heir != want || strings.Contains(m.role(), "heir") != want {
				t.Errorf("%s: member %s is the heir: %v, role %q", name, m.Node, m.Heir, m.role())
			}
		}
	}
}

func TestTheStatusNamesTheDeputies(t *testing.T) {
	for name, test := range map[string]struct {
		published []string
		lease     string
		line      string
		problem   bool
	}{
		"published":       {[]string{"b", "c"}, "/.leases/a-1", "Deputies b, c (to replace a if it does not renew its lease)", false},
		"one is gone":     {[]string{"d", "c"}, "/.leases/a-1", "Deputies c (to replace a if it does not renew its lease)", false},
		"none":            {nil, "/.leases/a-1", "", false},
		"no lease znode":  {[]string{"b", "c"}, "", "", true},
		"neither of both": {nil, "", "", false},
	} {
		s := withHeir(7, nil, cluster.HeirRecord{})
		s.Elected.Record.Deputies, s.Fence.Record.LeaseZnode = test.published, test.lease
		g := Of("c", "/c", s)
		line := ""
		for row := range strings.Lines(g.Table()) {
			if strings.HasPrefix(row, "Deputies") {
				line = strings.TrimSuffix(row, "\n")
			}
		}
		problem := strings.Contains(g.Table(), "Problem  a has no lease znode, so nobody sees whether it renews its lease")
		if line != test.line || len(g.Deputies) > 0 != (line != "") || problem != test.problem {
			t.Errorf("%s: %q, %q\n%s", name, g.Deputies, line, g.Table())
		}
	}
}
