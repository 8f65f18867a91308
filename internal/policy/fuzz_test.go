package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func fuzzed() Input {
	return Input{
		Members: []cluster.Member{
			member("a", "dc1", 100, 0, score(1.5), latency(0.3)), member("b", "dc2", 0, 1, label("rack", "r1")), member("c", "dc2", -7, 2),
		},
		Incumbent:     "b",
		Circumstances: cluster.Circumstances{Cause: cluster.CauseFailure, Node: "a", Site: "dc1", Failed: []string{"dc1"}},
	}
}

// patience is the longest time that ranking three members may take, on a busy machine.
const patience = 10 * time.Second

// ranked checks what must hold for every policy: it is rejected with the setting at fault, or it ranks all members quickly, and
// independently of their order.
func ranked(t *testing.T, rules cluster.Rules) {
	t.Helper()
	began := time.Now()
	p, err := New(cluster.Policy{Rules: rules})
	if err != nil {
		if key, _, ok := strings.Cut(err.Error(), ":"); !ok || !(strings.HasPrefix(key, "policy.") || strings.HasPrefix(key, "election.")) || p != nil {
			t.Errorf("%+v: %v", rules, err)
		}
		return
	}
	in := fuzzed()
	first := p.Rank(in)
	if len(first.Entries) != len(in.Members) {
		t.Errorf("%+v: %d entries", rules, len(first.Entries))
	}
	in.Members = slices.Clone(in.Members) // the ranking refers to the members
	in.Members[0], in.Members[2] = in.Members[2], in.Members[0]
	if again := p.Rank(in); places(again) != places(first) {
		t.Errorf("%+v: %s, then %s", rules, places(first), places(again))
	}
	verdicts, _ := first.Verdicts()
	if n := len(cluster.Encode(&cluster.Elected{Ranking: verdicts})); n > 4<<10 {
		t.Errorf("%+v: verdicts of %d bytes", rules, n)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("%+v: it took %s", rules, took)
	}
}

func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		"member.priority", `member.labels["rack"] == "r1"`, "count(members, .site == member.site)", "member.site in failed_sites ? -1 : 7",
		`int(member.labels.rack) ?? 3`, `sum(map(filter(1..10, # > 3), # * 2))`, `let x = member.score; x > 1 and not (x matches "a+")`,
		`member.id | upper() | len()`, `members[-1]?.id[0:1]`, "1/0", "2**1000", "{a: [1, 2]}.a[0]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ranked(t, cluster.Rules{Type: "priority", Filter: []string{text}})
		ranked(t, cluster.Rules{Rank: []string{"site", exprPrefix + text}})
		ranked(t, cluster.Rules{Type: "priority", Strategies: []cluster.Strategy{{When: text, Use: "first"}}})
	})
}

// FuzzPolicy decodes policies as from a znode.
func FuzzPolicy(f *testing.F) {
	for _, text := range []string{
		`{"v":1,"revision":3,"type":"priority","sites":{"dc1":2},"filter":["member.id != 'c'"]}`,
		`{"v":1,"type":"exec","hysteresis":50,"filter":["member.site != 'dc1'"],"failback":"delayed","failback_delay":"1m"}`,
		`{"v":1,"rank":["site","score","expr:member.priority","oldest"],"max_preemptions":3}`,
		`{"v":1,"type":"first","strategies":[{"when":"cause == 'failure'","use":"other-site"},{"use":"round-robin"}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s := cluster.ReadStored[cluster.Policy]("/c/policy", data, cluster.Stat{}, true); s.Err == nil {
			ranked(t, s.Record.Rules)
		}
	})
}

// An accepted answer lists members, each of them once.
func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`["b", "a"]`))
	f.Add([]byte(`["a", null]`))
	f.Add([]byte(`[] {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := ParseAnswer(data, fuzzed())
		if a.Err != "" && a.Ranking != nil {
			t.Errorf("%q: %v despite %s", data, a.Ranking, a.Err)
		}
		seen := make(map[string]bool)
		for _, id := range a.Ranking {
			if seen[id] || !strings.Contains("abc", id) || id == "" {
				t.Errorf("%q: %q", data, a.Ranking)
			}
			seen[id] = true
		}
	})
}
