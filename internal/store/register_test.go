package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"zkelectd/internal/cluster"
)

// failingSession is a session in which reads of some znodes fail.
type failingSession struct {
	registrar
	failing map[string]error
}

func (r *failingSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	if err := r.failing[path]; err != nil {
		return nil, cluster.Stat{}, err
	}
	return r.registrar.Get(ctx, path, watch)
}

func (r *failingSession) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	if err := r.failing[path]; err != nil {
		return nil, cluster.Stat{}, err
	}
	return r.registrar.Children(ctx, path, watch)
}

// Register finds its earlier registration. A failed read does not count as a missing registration.
func TestRegisterReadsBack(t *testing.T) {
	s := newRaceSource(t)
	conn := &failingSession{registrar: s.Session}
	again := func() (cluster.Incarnation, error) {
		return Register(t.Context(), conn, s.p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)})
	}
	own := s.p.Incarnation(s.self.Name)
	for path, words := range map[string]string{s.p.Node("a"): "cannot read znode", s.p.Election(): "cannot list znode", own: "cannot read znode"} {
		conn.failing = map[string]error{path: cluster.ErrNotSent}
		in, err := again()
		if contains(t, err, words, path); !errors.Is(err, cluster.ErrNotSent) || in.Name != "" {
			t.Errorf("%s: %+v, %v", path, in, err)
		}
	}
	conn.failing = nil
	s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Incarnation("a-0000000000000001-n_0000000000"), Ephemeral: true}) // owned by another session, and older
	s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Incarnation("b-0000000000000001-n_0000000077"), Ephemeral: true})
	for _, err := range []error{nil, cluster.ErrNoAuth} {
		conn.failing = map[string]error{s.p.Incarnation("a-0000000000000001-n_0000000000"): err}
		if in, err := again(); err != nil || in != s.self {
			t.Errorf("%+v, %v", in, err)
		}
	}
	conn.failing = map[string]error{own: cluster.ErrNoNode} // deleted after the list was read
	if in, err := again(); in.Name != "" {
		t.Errorf("%+v, %v", in, err)
	} else {
		contains(t, err, s.p.Node("a"), "its incarnation was deleted")
	}
	conn.failing = nil
	var older *OlderInstanceError
	_, err := Register(t.Context(), conn, s.p, cluster.Node{ID: "a", Instance: cluster.NewInstance(2)})
	if contains(t, err, s.p.Node("a")+` belongs to instance "0000000000000001", which has not left`); !errors.As(err, &older) {
		t.Error(err)
	}
	if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: s.p.Node("a"), Version: cluster.AnyVersion, Data: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	_, err = again()
	if contains(t, err, "this session already holds", s.p.Node("a")); !errors.As(err, &older) {
		t.Errorf("an unreadable record: %v", err)
	}
	var taken *TakenError
	s.do(cluster.Op{Kind: cluster.OpSet, Path: s.p.Node("elector"), Version: cluster.AnyVersion,
		Data: cluster.Encode(&cluster.Node{ID: "elector", Host: "host1", PID: 4711})})
	_, err = Register(t.Context(), conn, s.p, cluster.Node{ID: "elector", Instance: cluster.NewInstance(1)})
	if contains(t, err, `"elector"`, "host1", "4711", fmt.Sprintf("0x%x", s.admin.SessionID())); !errors.As(err, &taken) || taken.Session != s.admin.SessionID() || taken.Path != s.p.Node("elector") {
		t.Errorf("%v", err)
	}
	_, err = Register(t.Context(), conn, cluster.Paths{Root: "/none"}, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)})
	contains(t, err, "cannot register below /none")
}

// The name of an incarnation is never used again, even if the sequence begins again.
func TestNamesAreNotUsedAgain(t *testing.T) {
	s := newRaceSource(t)
	used := make(map[string]bool)
	for i := range uint64(3) {
		s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Node("a"), Version: cluster.AnyVersion})
		names, _, _ := s.admin.Children(t.Context(), s.p.Election(), false)
		for _, name := range names {
			s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Incarnation(name), Version: cluster.AnyVersion})
		}
		s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Election(), Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpCreate, Path: s.p.Election()})
		self, err := Register(t.Context(), s.Session, s.p, cluster.Node{ID: "a", Instance: cluster.NewInstance(10 + i)})
		if err != nil || self.Seq != 0 || used[self.Name] {
			t.Fatalf("%+v, %v, after %v", self, err, used)
		}
		s.self, used[self.Name] = self, true
	}
}

// A record that no session owns, as in a copy of the data, is replaced. If that is refused, the error says what to delete.
func TestRegisterReplacesARecordWithoutSession(t *testing.T) {
	s := newRaceSource(t)
	path := s.p.Node("b")
	s.do(cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(`{"v":1,"id":"b"}`)}, cluster.Op{Kind: cluster.OpCreate, Path: path + "/child"})
	register := func() (cluster.Incarnation, error) {
		return Register(t.Context(), s.Session, s.p, cluster.Node{ID: "b", Instance: cluster.NewInstance(1)})
	}
	var taken *TakenError
	if _, err := register(); !errors.As(err, &taken) || taken.Session != 0 {
		t.Fatal(err)
	} else {
		contains(t, err, "no session owns znode "+path, cluster.ErrNotEmpty.Error(), "deleteall "+path)
	}
	s.do(cluster.Op{Kind: cluster.OpDelete, Path: path + "/child"})
	in, err := register()
	if err != nil || in.ID != "b" {
		t.Fatalf("%+v, %v", in, err)
	}
	if _, stat, err := s.admin.Get(t.Context(), path, false); err != nil || stat.Owner != s.SessionID() {
		t.Errorf("%+v, %v", stat, err)
	}
}
