package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// RandomPrograms runs the same random programs on two environments, which must give the same results.
func RandomPrograms(t *testing.T, model, server func(t testing.TB) Env) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := newRunner(t, model(t)), newRunner(t, server(t))
		for i := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			step := drawStep(rt)
			if got, want := a.run(t, step), b.run(t, step); got != want {
				rt.Fatalf("step %d, %+v:\nmodel %s\n real %s", i, step, got, want)
			}
		}
	})
}

// step is one step of a program.
type step struct {
	session int
	kind    string // do, get, list, close
	path    string
	ops     []cluster.Op
}

func drawStep(t *rapid.T) step {
	path := func() string {
		return rapid.SampledFrom([]string{"/a", "/b", "/a/c", "/a/c/d", "/b/s-n_0000000000", "/b/s-n_0000000001"}).
			Draw(t, "path")
	}
	s := step{
		session: rapid.IntRange(0, 2).Draw(t, "session"), path: path(),
		kind: rapid.SampledFrom([]string{"do", "do", "do", "do", "get", "list", "close"}).Draw(t, "kind"),
	}
	for range rapid.IntRange(1, 4).Draw(t, "operations") {
		o := cluster.Op{
			Kind: cluster.OpKind(rapid.IntRange(0, 3).Draw(t, "operation")), Path: path(),
			Version: rapid.Int32Range(-1, 2).Draw(t, "version"),
			Data:    []byte(rapid.SampledFrom([]string{"", "x", "yy"}).Draw(t, "data")),
		}
		if o.Kind == cluster.OpCreate {
			o.Version = 0
			o.Ephemeral = rapid.Bool().Draw(t, "ephemeral")
			if rapid.IntRange(0, 3).Draw(t, "sequential") == 0 {
				o.Sequential, o.Path = true, "/b/s-n_"
			}
		}
		s.ops = append(s.ops, o)
	}
	return s
}

// runner runs a program. Its reports have no session ids or transaction ids, which differ between environments.
type runner struct {
	env   Env
	conns [3]Conn
}

func newRunner(t testing.TB, env Env) *runner {
	r := &runner{env: env}
	for i := range r.conns {
		r.conns[i] = env.Connect(t)
	}
	return r
}

func (r *runner) run(t testing.TB, s step) string {
	ctx, c := context.Background(), r.conns[s.session]
	switch s.kind {
	case "get":
		data, stat, err := c.Get(ctx, r.env.Root+s.path, false)
		return fmt.Sprintf("%q %s %v", data, r.stat(stat), err)
	case "list":
		names, stat, err := c.Children(ctx, r.env.Root+s.path, false)
		slices.Sort(names)
		return fmt.Sprintf("%q %s %v", names, r.stat(stat), err)
	case "close":
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
		r.conns[s.session] = r.env.Connect(t)
		return "closed"
	}
	ops := slices.Clone(s.ops)
	for i := range ops {
		ops[i].Path = r.env.Root + ops[i].Path
	}
	results, err := c.Do(ctx, ops...)
	if refused, ok := errors.AsType[*cluster.TxError](err); ok {
		return fmt.Sprintf("%d %v", refused.Index, refused.Err)
	}
	out := ""
	for _, res := range results {
		out += fmt.Sprintf(" %d %s", res.Version, res.Path[min(len(res.Path), len(r.env.Root)):])
	}
	return fmt.Sprintf("%s %v", out, err)
}

// stat describes metadata with the index of the owner's session, and with the order of creation and change instead of
// their ids.
func (r *runner) stat(s cluster.Stat) string {
	owner := "none"
	for i, c := range r.conns {
		if s.Owner != 0 && s.Owner == c.SessionID() {
			owner = fmt.Sprint("session ", i)
		}
	}
	return fmt.Sprintf("v%d c%d %s changed %v", s.Version, s.ChildVersion, owner, s.Modified > s.Created)
}
