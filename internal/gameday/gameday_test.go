package gameday

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// Each precondition refuses the drill by itself, and a healthy group permits it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	underWay := cluster.GameDays{Drills: []cluster.GameDay{{Drill: "child", By: "ann@n1", Until: noon.Add(time.Minute)}}}
	for name, c := range map[string]struct {
		drill  Drill
		change func(*status.Group)
		past   cluster.GameDays
		want   string
	}{
		"healthy":                     {drill: Move},
		"no leader":                   {drill: Move, change: func(g *status.Group) { g.State = status.StateNone }, want: "there is no READY leader"},
		"a takeover":                  {drill: Daemon, change: func(g *status.Group) { g.State = "PROGRESS" }, want: "there is no READY leader"},
		"a handover":                  {drill: Child, change: func(g *status.Group) { g.Next = "n2, term 8" }, want: "a handover is under way, to n2, term 8"},
		"alone":                       {drill: Network, change: func(g *status.Group) { g.Members = g.Members[:1] }, want: "no other member is eligible"},
		"others are cordoned":         {drill: Move, change: func(g *status.Group) { g.Members[1].Eligible = "cordoned" }, want: "no other member is eligible"},
		"paused":                      {drill: Move, change: request("pause"), want: "the group is paused"},
		"paused hard":                 {drill: Daemon, change: request("hard-pause"), want: "the group is paused"},
		"a reelection":                {drill: Child, change: request("reelect"), want: "a reelect is in force"},
		"a move, which is replaced":   {drill: Move, change: request("move"), want: "a move is in force"},
		"a move, which is kept":       {drill: Daemon, change: request("move")},
		"a cordon":                    {drill: Move, change: request("cordon")},
		"another drill":               {drill: Move, past: underWay, want: "ann@n1 runs the drill child, until 2026-01-02T12:01:00Z"},
		"a drill that was broken off": {drill: Move, past: cluster.GameDays{Drills: []cluster.GameDay{{Drill: "child", Until: noon}}}},
		"a drill that has ended": {drill: Move, past: cluster.GameDays{Drills: []cluster.GameDay{
			{Drill: "child", Until: noon.Add(time.Minute), Result: Kept},
		}}},
	} {
		g := status.Group{State: string(cluster.CurrentReady), Leader: "n1", Members: []status.Member{{Node: "n1", Eligible: "yes"}, {Node: "n2", Eligible: "yes"}}}
		if c.change != nil {
			c.change(&g)
		}
		got := Refusals(c.drill, g, c.past, noon)
		if len(got) > 1 || (len(got) == 1) != (c.want != "") || !strings.Contains(strings.Join(got, ""), c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The commands in refusals name the slot of the drill, except where they need its whole group.
func TestRefusalsNameTheSlot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ slot, kind, want string }{
		{"", "reelect", "or run 'zkelectd reelect -g ingest'"},
		{"3", "reelect", "or run 'zkelectd reelect -g ingest/3'"},
		{"3", "move", "or run 'zkelectd reelect -g ingest/3'"},
		{"3", "hard-pause", "run 'zkelectd resume -g ingest' first"},
	} {
		g := status.Group{Name: "ingest", Root: "/prod/other", Slot: c.slot, Requests: []status.Request{{Kind: c.kind}}}
		if got := Refusals(Move, g, cluster.GameDays{}, noon); !strings.HasSuffix(strings.Join(got, ""), c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func request(kind string) func(*status.Group) {
	return func(g *status.Group) { g.Requests = []status.Request{{Kind: kind}} }
}

func TestProblemsThatPassDoNotCount(t *testing.T) {
	t.Parallel()
	g := status.Group{Problems: []string{"a resize", "n2 is not ready to lead"}, Passing: []string{"a resize"}}
	if got := Problems(g); !slices.Equal(got, []string{"n2 is not ready to lead"}) {
		t.Errorf("got %q", got)
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	s := snapshot(7, "n1", cluster.CurrentReady, noon)
	s.Fence.Record = cluster.Fence{LeaseWait: cluster.Duration(3 * time.Second), Kill: cluster.Duration(time.Second), RevokeTimeout: cluster.Duration(5 * time.Second)}
	s.Current.Record.Incarnation = "n1-0000000000000001-n_0000000001"
	s.Members = []cluster.Member{{Incarnation: cluster.Incarnation{Name: "n1-0000000000000001-n_0000000001", ID: "n1"}}}
	s.Members[0].Node.Record.SessionTimeout = cluster.Duration(4 * time.Second)
	l := LimitsOf(s, false, 10*time.Second)
	for d, want := range map[Drill]time.Duration{Move: 15 * time.Second, Daemon: 11 * time.Second, Child: 11 * time.Second, Network: 19 * time.Second} {
		if got, terms := l.Promise(d); got != want || !strings.HasSuffix(terms, "takeover 10s") {
			t.Errorf("%s: %s, want %s (%s)", d, got, want, terms)
		}
	}
	if got, _ := LimitsOf(s, true, 10*time.Second).Promise(Network); got != 16*time.Second {
		t.Errorf("with trust in the end of a session: %s", got)
	}
}

func snapshot(term int64, node string, state cluster.CurrentState, ready time.Time) cluster.Snapshot {
	var s cluster.Snapshot
	if node != "" {
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: term, Node: node, State: state, Time: ready}}
	}
	return s
}

// seen is what an observer sees at a number of seconds; "lost" instead of a state is that it sees nothing.
type seen struct {
	at    int
	term  int64
	node  string
	state cluster.CurrentState
	ready int // by the clock of the node
}

func observe(begin int, all ...seen) *Observer {
	o := new(Observer)
	begun := false
	for _, s := range all {
		if !begun && s.at >= begin {
			o.Begin(noon.Add(time.Duration(begin) * time.Second))
			begun = true
		}
		if s.state == "lost" {
			o.Lost()
			continue
		}
		o.Observe(snapshot(s.term, s.node, s.state, noon.Add(time.Duration(s.ready)*time.Second)), noon.Add(time.Duration(s.at)*time.Second))
	}
	return o
}

func TestTimeWithoutALeader(t *testing.T) {
	t.Parallel()
	first := seen{at: 0, term: 7, node: "n1", state: cluster.CurrentReady}
	for name, c := range map[string]struct {
		all  []seen
		want int
	}{
		"none":                         {[]seen{first, {at: 20, term: 7, node: "n1", state: cluster.CurrentReady}}, 0},
		"nobody, then a takeover":      {[]seen{first, {at: 11}, {at: 13, term: 8, node: "n2", state: cluster.CurrentProgress}, {at: 16, term: 8, node: "n2", state: cluster.CurrentReady, ready: 16}}, 5},
		"too short to be seen":         {[]seen{first, {at: 14, term: 8, node: "n2", state: cluster.CurrentReady, ready: 13}}, 3},
		"the other clock is wrong":     {[]seen{first, {at: 14, term: 8, node: "n2", state: cluster.CurrentReady, ready: 500}}, 4},
		"two gaps, the longer one":     {[]seen{first, {at: 11}, {at: 13, term: 8, node: "n2", state: cluster.CurrentReady}, {at: 20}, {at: 21, term: 9, node: "n1", state: cluster.CurrentReady}}, 2},
		"it has not ended":             {[]seen{first, {at: 26}}, 4},
		"nobody after an outage":       {[]seen{first, {at: 12, state: "lost"}, {at: 20}, {at: 22, term: 8, node: "n2", state: cluster.CurrentReady}}, 12},
		"another one after the outage": {[]seen{first, {at: 12, state: "lost"}, {at: 22, term: 8, node: "n2", state: cluster.CurrentReady, ready: 19}}, 9},
	} {
		if got := observe(10, c.all...).Worst(noon.Add(30 * time.Second)); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: %s, want %d s", name, got, c.want)
		}
	}
}

// The figures of the electors are used only if they have all of them.
func TestFiguresOfTheHistory(t *testing.T) {
	t.Parallel()
	o := Outcome{Observer: observe(1, seen{term: 7, node: "n1", state: cluster.CurrentReady}, seen{at: 2}, seen{at: 5, term: 8, node: "n2", state: cluster.CurrentReady})}
	short := cluster.Duration(time.Second)
	for _, c := range []struct {
		history []cluster.PastTerm
		want    time.Duration
	}{
		{nil, 3 * time.Second},
		{[]cluster.PastTerm{{Leaderless: &short}}, time.Second},
		{[]cluster.PastTerm{{Leaderless: &short}, {}}, 3 * time.Second},
	} {
		o.History = c.history
		if got := o.Leaderless(noon.Add(6 * time.Second)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.history, got, c.want)
		}
	}
}

// Each promise that is not kept is found, and makes the result late.
func TestChecks(t *testing.T) {
	t.Parallel()
	away := []seen{{term: 7, node: "n1", state: cluster.CurrentReady}, {at: 2}, {at: 3, term: 8, node: "n2", state: cluster.CurrentReady}}
	back := append(slices.Clone(away), seen{at: 4}, seen{at: 5, term: 9, node: "n1", state: cluster.CurrentReady})
	good := func(d Drill, all ...seen) Outcome {
		return Outcome{Drill: d, Leader: "n1", Successor: "n2", Term: 7, Promise: 2 * time.Second, Terms: "x", Observer: observe(1, all...), Again: true, Forecast: "n1", Now: "n1"}
	}
	moved, killed, restarted := good(Move, back...), good(Daemon, back...), good(Child, away[0])
	restarted.Restarted = time.Second
	late := good(Move, away[0], seen{at: 1}, seen{at: 4, term: 8, node: "n2", state: cluster.CurrentReady}, seen{at: 5, term: 9, node: "n1", state: cluster.CurrentReady, ready: 5})
	unseen := good(Network, away[0], seen{at: 2, state: "lost"}, seen{at: 3, term: 9, node: "n1", state: cluster.CurrentReady, ready: 3})
	unseen.History = []cluster.PastTerm{{Term: 8, Node: "n2"}, {Term: 9, Node: "n1"}}
	other, stays, absent, held, twice, slow, dead := moved, moved, killed, killed, good(Daemon, append(back, seen{at: 6, term: 8, node: "n2", state: cluster.CurrentReady})...), restarted, restarted
	other.Successor, stays.Now, absent.Again, held.Now, slow.Restarted, dead.Restarted = "n3", "n2", false, "n2", 3*time.Second, 0
	for name, c := range map[string]struct {
		outcome Outcome
		want    string
	}{
		"moved":             {moved, ""},
		"killed":            {killed, ""},
		"restarted":         {restarted, ""},
		"child taken over":  {good(Child, away...), ""},
		"taken over unseen": {unseen, ""},
		"cut, and kept":     {good(Network, away[0]), ""},
		"late":              {late, "time without a READY leader: 3s"},
		"another member":    {other, "who took over: n2"},
		"nobody took over":  {good(Daemon, away[0]), "who took over: nobody"},
		"did not come back": {stays, "leadership came back: n2"},
		"no member again":   {absent, "n1 is a member again: no"},
		"not by policy":     {held, "leader in the end, by policy: n2"},
		"terms fall":        {twice, "one leader at a time: n2 was READY in term 8 after n1 in term 9"},
		"child is slow":     {slow, "child was started again: after 3s"},
		"child stays dead":  {dead, "child was started again: no"},
	} {
		checks := c.outcome.Checks(noon.Add(7 * time.Second))
		var bad []string
		for _, k := range checks {
			if !k.Kept {
				bad = append(bad, k.What+": "+k.Seen)
			}
		}
		want, result := []string{c.want}, Late
		if c.want == "" {
			want, result = nil, Kept
		}
		if !slices.Equal(bad, want) || Result(checks) != result {
			t.Errorf("%s: got %q and %s, want %q", name, bad, Result(checks), want)
		}
	}
}

func TestRulesCutBothDirectionsOfTheServersOnly(t *testing.T) {
	t.Parallel()
	got := Rules([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:2181"), netip.MustParseAddrPort("[fd00::2%eth0]:2182")})
	want := `table inet zkelectd_gameday {
	chain to_servers {
		type filter hook output priority 0;
		ip daddr 10.0.0.1 tcp dport 2181 drop
		ip6 daddr fd00::2 tcp dport 2182 drop
	}
	chain from_servers {
		type filter hook input priority 0;
		ip saddr 10.0.0.1 tcp sport 2181 drop
		ip6 saddr fd00::2 tcp sport 2182 drop
	}
}
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}
