package store

import (
	"math"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// In a large group, those that an election does not concern read it later. All others read at once: the heir, the elected, the holder,
// the elector and its successor, and whoever has another reason to read.
func TestOnlyTheUnconcernedReadLater(t *testing.T) {
	const other, leader = "x-0000000000000001-n_0000000009", "b-0000000000000001-n_0000000008"
	large := make([]cluster.Verdict, 50)
	for name, c := range map[string]struct {
		elected cluster.Elected
		hint    func(p cluster.Paths) string // besides elected; nil for none
		second  bool                         // this daemon becomes the elector if the elector goes
		holds   bool                         // this daemon owns current
		elector bool                         // this daemon is the elector
		want    time.Duration
	}{
		"a large group":      {elected: cluster.Elected{Incarnation: leader, Ranking: large, RankingOmitted: 150}, want: 100 * time.Millisecond},
		"a very large group": {elected: cluster.Elected{Incarnation: leader, Ranking: large, RankingOmitted: math.MaxInt - 50}, want: 200 * time.Millisecond},
		"a forged size":      {elected: cluster.Elected{Incarnation: leader, Ranking: large, RankingOmitted: math.MaxInt}},
		"a small group":      {elected: cluster.Elected{Incarnation: leader, Ranking: large[:19]}},
		"another heir":       {elected: cluster.Elected{Incarnation: leader, Ranking: large, Heir: &cluster.Heir{Incarnation: other}}, want: 25 * time.Millisecond},
		"the heir":           {elected: cluster.Elected{Incarnation: leader, Ranking: large, Heir: &cluster.Heir{Incarnation: "self"}}},
		"the elected":        {elected: cluster.Elected{Incarnation: "self", Ranking: large}},
		"the holder":         {elected: cluster.Elected{Incarnation: leader, Ranking: large}, holds: true},
		"the elector":        {elected: cluster.Elected{Incarnation: leader, Ranking: large}, elector: true},
		"the next elector":   {elected: cluster.Elected{Incarnation: leader, Ranking: large}, second: true},
		"a new heir":         {elected: cluster.Elected{Incarnation: leader, Ranking: large}, hint: cluster.Paths.Heir, want: 25 * time.Millisecond},
		"also the own record": {elected: cluster.Elected{Incarnation: leader, Ranking: large}, hint: func(p cluster.Paths) string {
			return p.Node("self")
		}},
		"also a reconnect": {elected: cluster.Elected{Incarnation: leader, Ranking: large}, hint: func(cluster.Paths) string { return "" }},
	} {
		s := newRaceSource(t)
		if c.elector {
			s.Session, s.admin = s.admin, s.Session
			s.register(t, "elector")
		} else if !c.second { // behind "a", which is the second
			s.register(t, "self")
		}
		for _, in := range []*string{&c.elected.Incarnation, heirOf(&c.elected)} {
			if in != nil && *in == "self" {
				*in = s.self.Name
			}
		}
		c.elected.Term = 6
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Elected(), Data: cluster.Encode(&c.elected)})
		hinted := &hintingSource{raceSource: s}
		reader := s.collector(hinted)
		if _, complete := reader.Collect(t.Context()); !complete {
			t.Fatalf("%s: incomplete", name)
		}
		if c.holds {
			reader.snap.HolderRead, reader.snap.Current = true, cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: s.SessionID()}}
		}
		hinted.next.Add(s.p.Elected())
		if c.hint != nil {
			if path := c.hint(s.p); path != "" {
				hinted.next.Add(path)
			} else {
				hinted.next.All = true
			}
		}
		if got := reader.Spread(); got != c.want {
			t.Errorf("%s: the reads are spread over %s, want %s", name, got, c.want)
		}
		if reader.valid[s.p.Elected()] {
			t.Errorf("%s: elected is not read again", name)
		}
	}
}

func heirOf(e *cluster.Elected) *string {
	if e.Heir == nil {
		return nil
	}
	return &e.Heir.Incarnation
}

// register registers another reading daemon in the place of the first.
func (s *raceSource) register(t *testing.T, id string) {
	t.Helper()
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: id, Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
}

// hintingSource has the hints of a test.
type hintingSource struct {
	*raceSource
	next cluster.Hints
}

func (s *hintingSource) TakeHints() cluster.Hints {
	h := s.next
	s.next = cluster.Hints{}
	return h
}
