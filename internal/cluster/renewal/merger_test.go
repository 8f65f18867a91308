package renewal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// zero shortens no interval.
func zero() float64 { return 0 }

func request(name string, due, deadline time.Duration) transition.Renew {
	p := cluster.Paths{Root: "/" + name}
	return transition.Renew{Ops: p.RenewTx(cluster.HeldVersions{Self: "n1-0000000000000001-n_0000000001"}), Due: due, Deadline: deadline}
}

// posted returns a merger with n groups, all due at 10 s and with a lease until 60 s.
func posted(n int) *Merger {
	m := NewMerger(zero)
	for id := range n {
		m.Post(0, id, request(fmt.Sprint("g", id), 10*time.Second, time.Minute))
	}
	return m
}

func refusal(index int) error { return &cluster.TxError{Index: index, Err: cluster.ErrBadVersion} }

func ids(b Batch) []int {
	var out []int
	for _, p := range b.parts {
		out = append(out, p.id)
	}
	return out
}

func wantIDs(t *testing.T, batches []Batch, want ...[]int) {
	t.Helper()
	var got [][]int
	for _, b := range batches {
		got = append(got, ids(b))
	}
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("the batches have the groups %v, want %v", got, want)
	}
}

func TestTheFirstDueRequestTakesAllAlong(t *testing.T) {
	m := NewMerger(zero)
	if m.Wake() != 0 || m.Take(time.Hour) != nil {
		t.Fatal("something to do without a request")
	}
	m.Post(0, 1, request("a", 10*time.Second, time.Minute))
	m.Post(0, 2, request("b", 5*time.Second, 30*time.Second))
	m.Post(0, 3, request("c", 20*time.Second, time.Minute))
	if m.Wake() != 5*time.Second {
		t.Fatalf("wakes at %s", m.Wake())
	}
	if m.Take(5*time.Second-1) != nil {
		t.Fatal("sent before one is due")
	}
	got := m.Take(5 * time.Second)
	wantIDs(t, got, []int{2, 1, 3}) // the lease that ends first comes first
	if b := got[0]; len(b.Ops) != 12 || b.Sent != 5*time.Second || b.Deadline != time.Minute || b.Ops[0].Path != "/b/election/n1-0000000000000001-n_0000000001" {
		t.Errorf("the batch is %+v", b)
	}
	if m.Wake() != 0 || m.Take(time.Hour) != nil {
		t.Error("a request is good for more than one renewal")
	}
	answers, again := m.Done(6*time.Second, got[0], nil)
	if len(again) != 0 || !reflect.DeepEqual(answers, []Answer{{2, transition.RenewDone{Sent: 5 * time.Second}}, {1, transition.RenewDone{Sent: 5 * time.Second}}, {3, transition.RenewDone{Sent: 5 * time.Second}}}) {
		t.Errorf("answers %v, again %v", answers, again)
	}
	if len(m.latest) != 0 {
		t.Errorf("%d requests are remembered", len(m.latest))
	}
}

// drain returns the batches that follow each other from the first on.
func drain(m *Merger, now time.Duration) (all []Batch) {
	for next := m.Take(now); len(next) > 0; {
		all = append(all, next[0])
		_, next = m.Done(now, next[0], nil)
	}
	return all
}

func TestBatchesAreBounded(t *testing.T) {
	m := posted(1000)
	m.SetLeaseZnode("/.leases/n1-1", 1, 1)
	got := drain(m, 10*time.Second)
	if len(got) != 2 || len(got[0].parts) < 500 || size(got[0].Ops) > MaxBatch || len(got[0].parts)+len(got[1].parts) != 1000 {
		t.Errorf("%d batches of %d groups and more", len(got), len(got[0].parts))
	}
	m = NewMerger(zero)
	large := request(strings.Repeat("x", MaxBatch), 0, time.Minute)
	m.Post(0, 1, large)
	m.Post(0, 2, large)
	wantIDs(t, drain(m, 1), []int{1}, []int{2})
	// A check on the wire: type, flag and error; the length of the path, the path, and the version. The second length is for a set.
	const second = 21 + 4
	for first, want := range map[int][][]int{128<<10 - second: {{1, 2}}, 128<<10 - second + 1: {{1}, {2}}} {
		ops := func(bytes int) []cluster.Op {
			return []cluster.Op{{Path: strings.Repeat("x", bytes-21-2), Data: []byte("yz")}}
		}
		m.Post(0, 1, transition.Renew{Ops: ops(first), Deadline: 2})
		m.Post(0, 2, transition.Renew{Ops: ops(second), Deadline: 3})
		wantIDs(t, drain(m, 1), want...)
	}
}

// lease is the operation that advances the lease znode at a version.
func lease(version int32) cluster.Op {
	return cluster.Op{Kind: cluster.OpSet, Path: "/.leases/n1-1", Version: version}
}

// After an outcome that is not known, the version is read, and nothing else is renewed before.
func TestTheVersionIsReadAfterALostReply(t *testing.T) {
	for version, lost := range map[int32]bool{4: true, 5: false, 6: false, 7: true} {
		m := posted(2)
		m.SetLeaseZnode("/.leases/n1-1", 1, 5)
		if answers, again := m.Done(11*time.Second, m.Take(10 * time.Second)[0], cluster.ErrUnknown); len(answers) != 2 || again != nil {
			t.Fatalf("answers %v, again %v", answers, again)
		}
		m.Post(11*time.Second, 1, request("g1", 12*time.Second, time.Minute))
		read := m.Take(12 * time.Second)
		if len(read) != 1 || read[0].Ops != nil || read[0].Deadline != time.Minute {
			t.Fatalf("sent %+v", read)
		}
		if m.Post(12*time.Second, 0, request("g0", 12*time.Second, time.Minute)); m.Take(13*time.Second) != nil {
			t.Error("sent while the version is not known")
		}
		answers, again := m.Counted(13*time.Second, read[0], cluster.Stat{Owner: 1, Version: version}, nil)
		switch {
		case lost && (m.Err() == nil || len(answers) != 1 || !errors.Is(answers[0].Err, cluster.ErrNotSent) || again != nil):
			t.Errorf("version %d: %v, %v, %v", version, m.Err(), answers, again)
		case !lost && (m.Err() != nil || len(answers) != 0 || len(again) != 1 || !reflect.DeepEqual(again[0].Ops[4], lease(version))):
			t.Errorf("version %d: %v, %v, %+v", version, m.Err(), answers, again)
		}
	}
}

// A read that fails answers those who wait, and is repeated for the next ones.
func TestTheVersionIsReadUntilItIsKnown(t *testing.T) {
	m := posted(1)
	m.SetLeaseZnode("/.leases/n1-1", 1, 5)
	m.Done(11*time.Second, m.Take(10 * time.Second)[0], cluster.ErrUnknown)
	for range 2 {
		m.Post(11*time.Second, 0, request("g0", 12*time.Second, time.Minute))
		answers, again := m.Counted(13*time.Second, m.Take(12 * time.Second)[0], cluster.Stat{}, cluster.ErrNotSent)
		if len(answers) != 1 || !errors.Is(answers[0].Err, cluster.ErrNotSent) || again != nil || m.Err() != nil {
			t.Errorf("%v, %v, %v", answers, again, m.Err())
		}
	}
	for _, stat := range []cluster.Stat{{Owner: 2, Version: 5}, {Version: 5}} {
		m.err = nil
		m.Post(11*time.Second, 0, request("g0", 12*time.Second, time.Minute))
		if m.Counted(13*time.Second, m.Take(12 * time.Second)[0], stat, nil); m.Err() == nil {
			t.Errorf("%+v is taken for the session's own", stat)
		}
	}
	m.err = nil
	m.Post(11*time.Second, 0, request("g0", 12*time.Second, time.Minute))
	if m.Counted(13*time.Second, m.Take(12 * time.Second)[0], cluster.Stat{}, cluster.ErrNoNode); m.Err() == nil {
		t.Error("the znode is gone, and the session goes on")
	}
}

// What is refused about the lease znode says nothing about the groups.
func TestARefusedLeaseZnodeRefusesNoGroup(t *testing.T) {
	for err, ends := range map[error]bool{cluster.ErrNoAuth: false, cluster.ErrInvalid: false, cluster.ErrNoNode: true, cluster.ErrBadVersion: true} {
		m := posted(2)
		m.SetLeaseZnode("/.leases/n1-1", 1, 5)
		b := m.Take(10 * time.Second)[0]
		answers, again := m.Done(11*time.Second, b, &cluster.TxError{Index: 8, Op: b.Ops[8], Err: err})
		if len(answers) != 2 || !errors.Is(answers[0].Err, cluster.ErrNotSent) || again != nil || (m.Err() != nil) != ends {
			t.Errorf("%v: %v, %v, %v", err, answers, again, m.Err())
		}
		m.Post(11*time.Second, 0, request("g0", 12*time.Second, time.Minute))
		if sent := m.Take(12 * time.Second); (sent == nil) != ends {
			t.Errorf("%v: renews with %+v", err, sent)
		}
	}
}

// Only the group that is named by the first real error loses its lease; the others must not wait for another interval.
func TestARefusalConcernsOneGroup(t *testing.T) {
	for index, culprit := range []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2} {
		m := posted(3)
		b := m.Take(10 * time.Second)[0]
		answers, again := m.Done(11*time.Second, b, &cluster.TxError{Index: index, Op: b.Ops[index], Err: cluster.ErrBadVersion})
		if len(answers) != 1 || answers[0].ID != culprit || !errors.Is(answers[0].Err, cluster.ErrBadVersion) {
			t.Errorf("operation %d: answers %v", index, answers)
		}
		var own *cluster.TxError // the group must see which of the operations was refused
		if !errors.As(answers[0].Err, &own) || own.Index != index%4 || own.Op.Path != b.Ops[index].Path {
			t.Errorf("operation %d: %+v", index, own)
		}
		if len(again) != 2 {
			t.Fatalf("operation %d: %d batches again, want one for each other group", index, len(again))
		}
		for _, one := range again {
			if len(one.parts) != 1 || len(one.Ops) != 4 || one.Sent != 11*time.Second || one.Deadline != time.Minute {
				t.Errorf("operation %d: again %+v", index, one)
			}
		}
		first, more := m.Done(12*time.Second, again[0], nil)
		if len(first) != 0 || more != nil {
			t.Errorf("a check renews %v, %v", first, more)
		}
		second, more := m.Done(12*time.Second, again[1], refusal(2))
		if len(second) != 1 || second[0].Err == nil || len(more) != 1 {
			t.Fatalf("a refused separate request: %v, %v", second, more)
		}
		if first, more = m.Done(13*time.Second, more[0], nil); len(first) != 1 || first[0].Err != nil || first[0].Sent != 12*time.Second || more != nil {
			t.Errorf("the lease counts from %v", first)
		}
	}
}

// An error that names no operation says nothing about any one group.
func TestARefusalWithoutAnOperation(t *testing.T) {
	for _, err := range []error{cluster.ErrNoAuth, refusal(-1), refusal(8)} {
		m := posted(2)
		answers, again := m.Done(11*time.Second, m.Take(10 * time.Second)[0], err)
		if len(answers) != 0 || len(again) != 2 {
			t.Fatalf("%v: answers %v, again %v", err, answers, again)
		}
		answers, again = m.Done(12*time.Second, again[0], err)
		if len(answers) != 1 || !errors.Is(answers[0].Err, err) || len(again) != 0 { // a check
			t.Errorf("%v: one group: answers %v, again %v", err, answers, again)
		}
	}
}

// Hosts whose renewals coincide must not stay aligned: the groups of a host vary their intervals together, up to 10 %.
func TestIntervalsVary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := NewMerger(rng.Float64)
	now, least, most := time.Second, time.Hour, time.Duration(0)
	for range 500 {
		for id := range 20 {
			m.Post(now, id, request("g", now+time.Second, now+3*time.Second))
		}
		at := m.Wake()
		least, most = min(least, at-now), max(most, at-now)
		b := m.Take(at)
		if len(b) != 1 || len(b[0].parts) != 20 {
			t.Fatalf("took %v", b)
		}
		m.Done(at, b[0], nil)
		now = at
	}
	if least < 900*time.Millisecond || least > 905*time.Millisecond || most > time.Second || most < 995*time.Millisecond {
		t.Errorf("the intervals are from %s to %s", least, most)
	}
	m.Post(now, 1, request("g", now-time.Second, now+time.Second)) // overdue
	if at := m.Wake(); at != now-time.Second {
		t.Errorf("an overdue request is sent at %s", at)
	}
	m = NewMerger(func() float64 { return 0.5 })
	m.Post(time.Second, 1, request("g", 2*time.Second, time.Minute))
	if at := m.Wake(); at != 1950*time.Millisecond {
		t.Errorf("the first interval ends at %s", at)
	}
	m = NewMerger(zero)
	m.Post(time.Second, 1, request("g", 0, time.Minute)) // 0 means at once, not never
	if m.Wake() == 0 || len(m.Take(time.Second)) != 1 {
		t.Error("a request that is due at 0 is not sent")
	}
}

// Whatever happens, a request is sent only while it is in force, and answered once at most, with what became of it. The lease znode
// advances once for each transaction that renews, and nobody else's version is taken for the session's own.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := NewMerger(rng.Float64)
		m.SetLeaseZnode("/.leases/n1-1", 1, 1)
		version := int32(1) // at the server
		now := time.Second
		inForce := map[int]time.Duration{} // the due time of each group's request identifies it
		var flying []Batch
		send := func(batches []Batch) {
			for _, b := range batches {
				for _, p := range b.parts {
					if inForce[p.id] != p.Due || now >= p.Deadline || b.Sent != now {
						t.Fatalf("seed %d: %d is sent at %s, in force is %s: %+v", seed, p.id, now, inForce[p.id], p)
					}
				}
				flying = append(flying, b)
			}
		}
		for range 200 {
			now += time.Duration(rng.IntN(1000)) * time.Millisecond
			id := rng.IntN(5)
			switch rng.IntN(4) {
			case 0:
				due := now + time.Duration(rng.IntN(3000))*time.Millisecond + 1
				inForce[id] = due
				m.Post(now, id, request(fmt.Sprint(id), due, due+time.Duration(rng.IntN(2000))*time.Millisecond))
			case 1:
				delete(inForce, id)
				m.Withdraw(id)
			case 2:
				send(m.Take(now))
			case 3:
				if len(flying) == 0 {
					continue
				}
				b := flying[0]
				flying = flying[1:]
				var answers []Answer
				var again []Batch
				switch outcome := rng.IntN(4); {
				case b.Ops == nil && outcome == 0:
					answers, again = m.Counted(now, b, cluster.Stat{}, cluster.ErrNotSent)
				case b.Ops == nil:
					answers, again = m.Counted(now, b, cluster.Stat{Owner: 1, Version: version}, nil)
				case outcome == 0:
					answers, again = m.Done(now, b, refusal(rng.IntN(4*len(b.parts))))
				default: // it takes effect, with a reply or not, or is lost
					if last := b.Ops[len(b.Ops)-1]; outcome < 3 && last.Path == "/.leases/n1-1" {
						if last.Version != version {
							t.Fatalf("seed %d: version %d is advanced at %d", seed, version, last.Version)
						}
						version++
					}
					answers, again = m.Done(now, b, []error{nil, nil, cluster.ErrUnknown, cluster.ErrUnknown}[outcome])
				}
				for _, a := range answers {
					if _, current := inForce[a.ID]; !current || a.Sent != b.Sent {
						t.Fatalf("seed %d: %d gets an answer %v, in force is %s", seed, a.ID, a, inForce[a.ID])
					}
					for _, p := range b.parts {
						if p.id == a.ID && p.Due != inForce[a.ID] {
							t.Fatalf("seed %d: %d gets an answer %v for its request of %s, in force is %s", seed, a.ID, a, p.Due, inForce[a.ID])
						}
					}
					delete(inForce, a.ID)
				}
				send(again)
			}
			if m.Err() != nil {
				t.Fatalf("seed %d: %v", seed, m.Err())
			}
		}
	}
}
