package policy

import (
	"testing"

	"zkelectd/internal/cluster"
)

func TestCacheCompilesOncePerChange(t *testing.T) {
	var c Cache
	rec := cluster.Policy{Revision: 1, Rules: cluster.Rules{Type: "priority", Sites: map[string]int{"dc1": 1}}}
	first, err := c.Compile(rec)
	if err != nil {
		t.Fatal(err)
	}
	same := rec
	same.Rules.Sites = map[string]int{"dc1": 1}
	if again, err := c.Compile(same); err != nil || again != first {
		t.Errorf("an equal policy was compiled again: %v", err)
	}
	for name, change := range map[string]func(*cluster.Policy){
		"revision": func(p *cluster.Policy) { p.Revision = 2 },
		"rules":    func(p *cluster.Policy) { p.Rules.Sites = map[string]int{"dc1": 2} },
	} {
		next := rec
		change(&next)
		got, err := c.Compile(next)
		if err != nil || got == first || got.Revision != next.Revision || got.Rules.Sites["dc1"] != next.Rules.Sites["dc1"] {
			t.Errorf("another %s: %+v, %v", name, got, err)
		}
	}
	if p, err := new(Cache).Compile(cluster.Policy{}); p != nil || err == nil {
		t.Errorf("an empty policy: %v, %v", p, err)
	}
	for range 2 {
		if p, err := c.Compile(cluster.Policy{Rules: cluster.Rules{Type: "coin"}}); p != nil || err == nil {
			t.Errorf("a policy that cannot be compiled: %v, %v", p, err)
		}
	}
}
