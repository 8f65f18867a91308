package cluster

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// The values of docs/protocol.md: the budgets for session timeouts and stop timeouts.
func TestBudgetValues(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		session, lease, stop time.Duration
		want                 Budget
	}{
		{10 * time.Second, 0, 2 * time.Second, Budget{
			Session: 10 * time.Second, Lease: 4500 * ms, Kill: 1500 * ms, Stop: 2 * time.Second, Handover: 300 * ms,
			Grace: 2 * time.Second, Renew: 2500 * ms / 3, LeaseWait: 6121212121,
		}},
		{20 * time.Second, 0, 6 * time.Second, Budget{
			Session: 20 * time.Second, Lease: 9 * time.Second, Kill: 3 * time.Second, Stop: 6 * time.Second, Handover: 300 * ms,
			Grace: 4500 * ms, Renew: 1500 * ms, LeaseWait: 12242424242,
		}},
		{10 * time.Second, 0, 0, Budget{
			Session: 10 * time.Second, Lease: 4500 * ms, Kill: 1500 * ms, Handover: 300 * ms, Renew: 1500 * ms, LeaseWait: 6121212121,
		}},
		{20 * time.Second, 900 * ms, 750 * ms, Budget{
			Session: 20 * time.Second, Lease: 900 * ms, Kill: 300 * ms, Stop: 750 * ms, Handover: 187500 * time.Microsecond,
			Grace: 450 * ms, Renew: 150 * ms, LeaseWait: 1224242424,
		}},
		{20 * time.Second, 2 * time.Second, 0, Budget{ // the figures of docs/sizing.md
			Session: 20 * time.Second, Lease: 2 * time.Second, Kill: 666666666, Handover: 300 * ms, Renew: 666666666, LeaseWait: 2720538719,
		}},
	} {
		got, err := NewBudget(c.session, c.lease, c.stop)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("T = %s, lease %s, stop %s:\n got %+v\nwant %+v", c.session, c.lease, c.stop, got, c.want)
		}
		if end := got.SessionEnd(); end != c.session*3/2 {
			t.Errorf("T = %s: the session ends within %s", c.session, end)
		}
		if p, want := got.RevokeTimeout(), c.stop+got.Lease+got.Kill; p != want {
			t.Errorf("revoke timeout %s, want %s", p, want)
		}
	}
	b, err := NewBudget(10*time.Second, 0, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	const want = "session timeout 10s (negotiated), lease 4.5s renewed every 830ms, stop timeout 2s, kill margin 1.5s, lease wait 6.12s"
	if got := b.Text(); got != want {
		t.Errorf("%s", got)
	}
}

// The longest stop timeout that fits, and what the error for a longer one advises.
func TestTheLongestStop(t *testing.T) {
	const session = 10 * time.Second
	longest := Lease(session) - Lease(session)/6 // renewed every D/6
	if _, err := NewBudget(session, 0, longest); err != nil {
		t.Errorf("%s is rejected: %v", longest, err)
	}
	_, err := NewBudget(session, 0, longest+1)
	if err == nil {
		t.Fatalf("%s is accepted", longest+1)
	}
	_, err = NewBudget(session, 0, 4*time.Second)
	if err == nil || !strings.Contains(err.Error(), "shorten it to at most 3.75s,") || !strings.HasSuffix(err.Error(), " to 10.7s") {
		t.Errorf("%v", err)
	}
	if _, err := NewBudget(10700*time.Millisecond, 0, 4*time.Second); err != nil {
		t.Errorf("what is advised is rejected: %v", err)
	}
	if _, err := NewBudget(6170*time.Millisecond, 0, 4*time.Second); err == nil || !strings.Contains(err.Error(), "at most 2.31s,") {
		t.Errorf("%v", err)
	}
}

// A strike excludes its node for twice as long as the one before, up to the limit, and does not change the others.
func TestStrikesDouble(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	others := []Exclusion{{Node: "a", Strikes: 1, For: Duration(time.Second), Term: 3, Reason: "old", Expired: true}, {Node: "c", Strikes: 5}}
	before := append([]Exclusion(nil), others...)
	for node, at := range map[string]int{"a": 0, "b": 2} {
		list := others
		first := 1
		if node == "a" {
			first = 2
		}
		for strikes := first; strikes < 70; strikes++ {
			list = Strike(list, node, "failed", int64(10+strikes), time.Minute, time.Hour, wall)
			want := time.Hour
			if strikes < 7 {
				want = time.Minute << (strikes - 1)
			}
			if got := (Exclusion{Node: node, Strikes: strikes, For: Duration(want), Term: int64(10 + strikes), Reason: "failed", Time: wall, Since: wall}); !reflect.DeepEqual(list[at], got) {
				t.Fatalf("%s:\n got %+v\nwant %+v", node, list[at], got)
			}
		}
		if len(list) != max(2, at+1) || !reflect.DeepEqual(list[1], before[1]) {
			t.Errorf("the others: %+v", list)
		}
	}
	marked := MarkExpired(others, func(x Exclusion) bool { return x.Node == "b" })
	if !marked[0].Expired || marked[1].Expired {
		t.Errorf("exclusions marked as expired: got %+v", marked)
	}
	if all := MarkExpired(others, func(Exclusion) bool { return true }); !all[1].Expired || len(all) != 2 {
		t.Errorf("%+v", all)
	}
	suspended := Suspend(others, func(node string) bool { return node == "c" })
	if x := suspended[1]; !x.Expired || !x.Suspended || !x.Failed() || suspended[0].Failed() {
		t.Errorf("suspended: %+v", suspended)
	}
	if over := MarkExpired(suspended, func(Exclusion) bool { return true }); over[1].Failed() {
		t.Errorf("a suspended exclusion whose time is over still counts: %+v", over)
	}
	later := Strike(suspended, "c", "failed", 99, time.Minute, time.Hour, wall.Add(time.Hour))
	if x := Strike(later, "c", "failed", 99, time.Minute, time.Hour, wall.Add(2*time.Hour))[1]; !x.Since.Equal(wall.Add(time.Hour)) || x.Expired || x.Suspended {
		t.Errorf("struck again: %+v", x)
	}
	if !reflect.DeepEqual(others, before) {
		t.Errorf("the input was changed: %+v", others)
	}
}
