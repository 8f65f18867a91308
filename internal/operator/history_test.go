package operator

import (
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

func TestReadHistory(t *testing.T) {
	s, paths := storetest.NewServer().Connect(), cluster.Paths{Root: "/g"}
	if h, err := ReadHistory(t.Context(), s, paths, false); err != nil || len(h.Terms) != 0 {
		t.Errorf("before there is one: %+v %v", h, err)
	}
	want := cluster.History{Terms: []cluster.PastTerm{{Term: 7, Node: "a"}}}
	ops := []cluster.Op{
		{Kind: cluster.OpCreate, Path: "/g"},
		{Kind: cluster.OpCreate, Path: paths.History(), Data: cluster.EncodeHistory(&want)},
	}
	if _, err := s.Do(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHistory(t.Context(), s, paths, false); err != nil || len(h.Terms) != 1 || h.Terms[0].Node != "a" {
		t.Errorf("%+v %v", h, err)
	}
	if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: paths.History(), Version: cluster.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHistory(t.Context(), s, paths, false); err == nil {
		t.Errorf("an empty znode is taken for an empty history: %+v", h)
	}
	s.Close(t.Context())
	if _, err := ReadHistory(t.Context(), s, paths, false); !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("after the session's end: %v", err)
	}
}
