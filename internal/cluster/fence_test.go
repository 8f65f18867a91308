package cluster

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Only a readable fence is ever trusted (S1).
func TestAnUnreadableFenceIsRewrittenAsRevoked(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	const path = "/c/leader"
	released := Fence{Term: 7, State: FenceReleased, LeaseWait: Duration(2 * time.Second)}
	remembered := LastKnown{Term: 12, Fence: Fence{
		Term: 12, Node: "a", State: FenceReleased, LeaseWait: Duration(9 * time.Second), RevokeTimeout: Duration(4 * time.Second),
	}}
	member := Member{Node: Stored[Node]{Exists: true, Record: Node{SessionTimeout: Duration(20 * time.Second)}}}
	for name, c := range map[string]struct {
		fence   Stored[Fence]
		elected bool
		memory  LastKnown
		members []Member
		want    *Fence // state, term, lease wait and revoke timeout count
	}{
		"readable":                        {fence: ReadFence(path, Encode(&released), Stat{}, true), elected: true},
		"readable, elected deleted":       {fence: ReadFence(path, Encode(&released), Stat{}, true), want: &released},
		"deleted, nothing known":          {want: &Fence{Term: 19, State: FenceRevoked}},
		"never written, nothing known":    {fence: ReadFence(path, nil, Stat{}, true), want: &Fence{Term: 19, State: FenceRevoked}},
		"emptied":                         {fence: ReadFence(path, nil, Stat{Version: 1}, true), elected: true, want: &Fence{Term: 19, State: FenceRevoked}},
		"damaged":                         {fence: ReadFence(path, []byte("x"), Stat{Version: 1}, true), elected: true, want: &Fence{Term: 19, State: FenceRevoked}},
		"deleted, the last one is known":  {memory: remembered, want: &Fence{Term: 19, State: FenceRevoked, LeaseWait: Duration(9 * time.Second), RevokeTimeout: Duration(4 * time.Second)}},
		"damaged, a member's W is longer": {fence: ReadFence(path, []byte("x"), Stat{Version: 1}, true), memory: remembered, members: []Member{member}, want: &Fence{Term: 19, State: FenceRevoked, LeaseWait: Duration(LeaseWait(20 * time.Second)), RevokeTimeout: Duration(4 * time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Fence: c.fence, Members: c.members}
			s.Elected.Exists = c.elected
			got := c.memory.ReplacementFence(&s, 20, wall)
			if (got == nil) != (c.want == nil) {
				t.Fatalf("%+v", got)
			}
			if got == nil {
				return
			}
			if got.State != c.want.State || got.Term != c.want.Term || got.LeaseWait < c.want.LeaseWait || (c.want.RevokeTimeout > 0 && got.RevokeTimeout != c.want.RevokeTimeout) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if again := ReadFence(path, Encode(got), Stat{}, true); again.Err != nil {
				t.Errorf("it cannot be read back: %v", again.Err)
			}
			after := Snapshot{Fence: Stored[Fence]{Exists: true, Record: *got}}
			const own = 3 * time.Second
			if wait, _ := after.Owed(own); got.State != FenceReleased && wait < own {
				t.Errorf("a candidate waits only for %s", wait)
			}
		})
	}
}

// The fence that an election writes over a lost one says what is known of the last holder, and why it was written.
func TestARewrittenFenceNamesTheLastHolder(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0).UTC()
	seen := Snapshot{Fence: Stored[Fence]{Exists: true, Record: Fence{
		Term: 12, Node: "a", Site: "dc1", Incarnation: "a-0000000000000001-n_0000000001", State: FenceReady, Owed: Duration(8 * time.Second), LeaseWait: Duration(7 * time.Second),
		Kill: Duration(time.Second), RevokeTimeout: Duration(4 * time.Second)}}}
	known := func(m *LastKnown) { m.Update(&seen) }
	unknown := func(*LastKnown) {}
	want := Fence{
		Term: 19, Node: "a", Site: "dc1", Incarnation: "a-0000000000000001-n_0000000001", State: FenceRevoked, LeaseWait: Duration(8 * time.Second),
		Kill: Duration(time.Second), RevokeTimeout: Duration(4 * time.Second), Time: wall,
		Owed: Duration(8 * time.Second), // to whoever may have led since
	}
	long := Snapshot{Members: []Member{{Node: Stored[Node]{Record: Node{SessionTimeout: Duration(MaxWait)}}}}}
	for name, c := range map[string]struct {
		see    func(*LastKnown)
		s      Snapshot
		change func(*Fence)
	}{
		"deleted":       {known, Snapshot{}, func(f *Fence) { f.Reason = "the znode leader was deleted" }},
		"never written": {known, Snapshot{Fence: ReadFence("/c/leader", nil, Stat{}, true)}, func(f *Fence) { f.Reason = "no earlier leader is known" }},
		"damaged": {known, Snapshot{Fence: Stored[Fence]{Exists: true, Err: errors.New("no JSON")}}, func(f *Fence) {
			f.Reason = "the record was damaged: no JSON"
		}},
		"no holder known": {unknown, Snapshot{Members: []Member{{Node: Stored[Node]{Record: Node{SessionTimeout: Duration(20 * time.Second)}}}}}, func(f *Fence) {
			w := LeaseWait(20 * time.Second)
			*f = Fence{Term: 19, State: FenceRevoked, Owed: Duration(w), LeaseWait: Duration(w), RevokeTimeout: Duration(2 * w), Time: wall, Reason: "the znode leader was deleted"}
		}},
		"no holder known, the longest session": {unknown, long, func(f *Fence) {
			*f = Fence{Term: 19, State: FenceRevoked, Owed: Duration(LeaseWait(MaxWait)), LeaseWait: Duration(LeaseWait(MaxWait)), RevokeTimeout: Duration(min(2*LeaseWait(MaxWait), MaxWait)), Time: wall, Reason: "the znode leader was deleted"}
		}},
	} {
		var m LastKnown
		c.see(&m)
		w := want
		c.change(&w)
		if got := m.ReplacementFence(&c.s, 20, wall); !reflect.DeepEqual(*got, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, *got, w)
		}
	}
}

// The longest known lease wait is that of any readable record, but never more than a record may hold.
func TestTheLongestLeaseWaitCounts(t *testing.T) {
	fence := func(wait, owed time.Duration) Snapshot {
		return Snapshot{Fence: Stored[Fence]{Exists: true, Record: Fence{LeaseWait: Duration(wait), Owed: Duration(owed)}}}
	}
	damaged := fence(time.Second, time.Second)
	damaged.Fence.Err = errors.New("damaged")
	for name, c := range map[string]struct {
		m    LastKnown
		s    Snapshot
		want time.Duration
	}{
		"nothing":            {LastKnown{}, Snapshot{}, 0},
		"its wait":           {LastKnown{}, fence(3, 2), 3},
		"its remaining wait": {LastKnown{}, fence(2, 3), 3},
		"the last wait":      {LastKnown{Fence: Fence{LeaseWait: 5, Owed: 2}}, fence(3, 2), 5},
		"the last remaining": {LastKnown{Fence: Fence{LeaseWait: 2, Owed: 5}}, fence(3, 2), 5},
		"not a damaged one":  {LastKnown{}, damaged, 0},
		"not too long":       {LastKnown{Fence: Fence{LeaseWait: Duration(time.Hour)}}, Snapshot{}, MaxWait},
	} {
		if got := c.m.LeaseWait(&c.s); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	// For a session timeout that is too short for a budget, the timeout itself is longer than any lease.
	if got := LeaseWait(100 * time.Millisecond); got != 100*time.Millisecond {
		t.Errorf("for a session timeout that is too short: %s", got)
	}
	b, err := NewBudget(20*time.Second, 0, 0)
	if got := LeaseWait(20 * time.Second); err != nil || got != b.LeaseWait {
		t.Errorf("%s, want %s", got, b.LeaseWait)
	}
}

func TestOverflowingWaitsAreDamage(t *testing.T) {
	node := func(text string) error {
		return ReadStored[Node]("/c/nodes/a", []byte(`{"v":1,"session_timeout":"`+text+`"}`), Stat{}, true).Err
	}
	if err := node("2562047h"); err == nil || !strings.Contains(err.Error(), "session_timeout") || node("10m") != nil {
		t.Errorf("session timeouts: %v, %v", err, node("10m"))
	}
	f := Fence{LeaseWait: Duration(MaxWait), Owed: Duration(MaxWait), Kill: Duration(MaxWait), RevokeTimeout: Duration(MaxWait)}
	if s := ReadFence("/c/leader", Encode(&f), Stat{}, true); s.Err != nil {
		t.Errorf("the longest waits are rejected: %v", s.Err)
	}
	for name, f := range map[string]Fence{
		"lease_wait": {LeaseWait: Duration(MaxWait) + 1}, "owed": {Owed: Duration(MaxWait) + 1}, "kill": {Kill: -1}, "revoke_timeout": {RevokeTimeout: Duration(MaxWait) + 1},
		"the wait for": {Owed: 1, Earlier: []EarlierHolder{{Wait: 2}}},
	} {
		if err := f.validate(Stat{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewerRecordsAreNotDamaged(t *testing.T) {
	newer := []byte(`{"v":3,"term":7}`)
	s := Snapshot{Fence: ReadFence("/c/leader", newer, Stat{}, true)}
	var typed *NewerVersionError
	if err := s.Newer(); !errors.As(err, &typed) || typed.Version != 3 || typed.Path != "/c/leader" {
		t.Errorf("%v", err)
	}
	for _, data := range []string{"", "x", `{"v":0}`, `{"v":1,"term":-1}`} {
		if s := ReadFence("/c/leader", []byte(data), Stat{Version: 1}, true); s.Err == nil || s.Newer() != nil {
			t.Errorf("%q: %v", data, s.Newer())
		}
	}
	for name, s := range map[string]Snapshot{
		"elected": {Elected: ReadStored[Elected]("/c/leader/elected", newer, Stat{}, true)},
		"current": {Current: ReadStored[Current]("/c/leader/current", newer, Stat{}, true)},
	} {
		if s.Newer() == nil {
			t.Errorf("%s of a newer version is not found", name)
		}
	}
	if _, err := DecodeHistory("/c/history", compress([]byte(`{"v":3,"terms":[]}`))); !errors.As(err, &typed) || typed.Version != 3 {
		t.Errorf("a compressed history: %v", err)
	}
}

// The versions of a recreated leader are above those that any of the terms before can have written.
func TestANewLeaderSkipsVersions(t *testing.T) {
	p := Paths{Root: "/c"}
	for name, read := range map[string]Stored[Fence]{"deleted": {}, "never written": ReadFence(p.Leader(), nil, Stat{}, true)} {
		var before int32
		for term := range int64(termCycle) {
			fence := Fence{Term: 1800000000/termCycle*termCycle + term, State: FenceRevoked}
			ops := p.writeFence(read, fence, fence.Term)
			if !read.Exists {
				if ops[0].Kind != OpCreate || ops[0].Path != p.Leader() {
					t.Fatalf("%s: begins with %v", name, ops[0].Kind)
				}
				ops = ops[1:]
			}
			for i, op := range ops {
				if op.Kind != OpSet || op.Version != int32(i) || op.Path != p.Leader() {
					t.Fatalf("%s: %+v, want version %d", name, op, i)
				}
			}
			if last := ops[len(ops)-1]; string(last.Data) != string(Encode(&fence)) {
				t.Fatalf("%s: ends with %s", name, last.Data)
			}
			version := int32(len(ops))
			if term > 0 && version != before+termWrites {
				t.Errorf("%s: the fence of term %d has version %d after %d", name, fence.Term, version, before)
			}
			before = version
		}
	}
	fence := Fence{Term: 999, State: FenceRevoked}
	damaged := ReadFence(p.Leader(), []byte("x"), Stat{Version: 9}, true)
	ops := p.writeFence(damaged, fence, fence.Term)
	if got := Brief(ops, plain); !slices.Equal(got, []string{"set /c/leader@9"}) || string(ops[len(ops)-1].Data) != string(Encode(&fence)) {
		t.Errorf("a damaged fence: %q", got)
	}
}

// A first election is split into transactions of a bounded size. Whatever their number when they end early, the znode counts as never
// written, and the next elector goes on to the version at which its own term begins.
func TestSplitFirstElections(t *testing.T) {
	p := Paths{Root: "/c"}
	for _, term := range []int64{0, 1, 4, 5, 63, 64, 1795646972} {
		for _, exists := range []bool{false, true} {
			var version int32
			read := ReadFence(p.Leader(), nil, Stat{}, exists)
			for interrupted := 0; ; interrupted++ {
				snap := Snapshot{Self: Incarnation{Name: "n1-0000000000000001-n_0"}, Fence: read}
				txs := p.Split(p.ElectTx(snap, Elected{Term: term, Incarnation: "n2-0000000000000001-n_1"}, &Fence{Term: term}))
				for i, tx := range txs {
					if len(tx) > maxRaise+5 || tx[0].Kind != OpCheck || tx[0].Path != p.Incarnation(snap.Self.Name) || (tx[len(tx)-1].Path == p.Elected()) != (i == len(txs)-1) {
						t.Fatalf("term %d: transaction %d is %+v", term, i, tx)
					}
				}
				for _, op := range txs[0] { // the first one takes effect, and the elector dies
					if op.Path != p.Leader() {
						continue
					}
					if op.Kind == OpSet {
						if op.Version != version {
							t.Fatalf("term %d: writes version %d over %d", term, op.Version, version)
						}
						version++
					}
					read = ReadFence(p.Leader(), op.Data, Stat{Version: version}, true)
				}
				if len(txs) == 1 {
					break
				}
				if !errors.Is(read.Err, ErrNeverWritten) {
					t.Fatalf("term %d, interrupted at version %d: %+v", term, version, read)
				}
				term++ // that of the next elector; it may be in the next cycle
			}
			if !read.Readable() || read.Record.Term != term || version%1024 != int32(16*(term%64)+1) {
				t.Errorf("term %d: version %d, %+v", term, version, read)
			}
		}
	}
}
