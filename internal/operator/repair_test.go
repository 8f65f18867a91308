package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/store/storetest"
)

// Damaged records are overwritten by the version that was read; those that are in order, or of a newer version, are left alone.
func TestPlanRepairs(t *testing.T) {
	s, paths := storetest.NewServer().Connect(), cluster.Paths{Root: "/g"}
	create := func(path, data string) {
		t.Helper()
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	create("/g", "")
	for _, dir := range []string{paths.Election(), paths.Nodes()} {
		create(dir, "")
	}
	create(paths.History(), "garbage")
	create(paths.Control(), `{"v":9}`)
	create(paths.Policy(), "garbage")
	create(paths.Slots(), "garbage")
	d, err := ReadDamage(t.Context(), s, paths)
	if err != nil {
		t.Fatal(err)
	}
	with := Replacement{Policy: func() (config.Config, error) { return configured(t), nil }, By: "bob@host", Wall: time.Now()}
	plan, err := d.PlanRepairs(with)
	if err != nil || len(plan) != 4 {
		t.Fatalf("%v, %+v", err, plan)
	}
	for i, want := range []struct {
		name, action, path string
		refused            bool
	}{
		{"policy", "replaced by the policy of the configuration", paths.Policy(), false},
		{"control", "left alone", "", true},
		{"history", "emptied", paths.History(), false},
		{"slots", "repaired by the elector", "", false},
	} {
		r := plan[i]
		if r.Name != want.name || !strings.HasPrefix(r.Action, want.action) || r.Refused != want.refused || (r.Op != nil) != (want.path != "") {
			t.Errorf("%+v, want %+v", r, want)
		}
		if r.Op == nil {
			continue
		}
		if _, err := s.Do(t.Context(), *r.Op); err != nil || r.Op.Path != want.path {
			t.Errorf("%s: %v", r.Op.Path, err)
		}
		if _, err := s.Do(t.Context(), *r.Op); err == nil {
			t.Errorf("%s is overwritten although it has changed", r.Op.Path)
		}
	}
	if d, err = ReadDamage(t.Context(), s, paths); err != nil {
		t.Fatal(err)
	}
	if plan, err := d.PlanRepairs(with, "policy", "history"); err != nil || len(plan) != 0 {
		t.Errorf("once repaired: %v, %+v", err, plan)
	}
	if _, err := d.PlanRepairs(with, "nodes"); err == nil {
		t.Error("an unknown record is accepted")
	}
}

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
