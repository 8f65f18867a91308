package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// Conn is all of a session: what the contract is about.
type Conn interface {
	cluster.ReadWriter
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
	// Close ends the session on the server, so that its ephemerals vanish at once, and returns when that is done or ctx is
	// over.
	Close(ctx context.Context) error
}

// Env is an environment to test: the model, or a real server.
type Env struct {
	// Connect opens a session.
	Connect func(t testing.TB) Conn
	// Group returns a handle for a group that shares a session.
	Group func(c Conn, p cluster.Paths) Handle
	// Expire ends a session on the server, without its client.
	Expire func(t testing.TB, c Conn)
	// Root is an existing znode under which the test may create others.
	Root string
}

// Contract tests the behavior of ZooKeeper that zkelectd relies on. start returns an environment for each part.
func Contract(t *testing.T, start func(t testing.TB) Env) {
	for name, part := range map[string]func(t *testing.T, e Env){
		"sequential names":         sequentialNames,
		"versions":                 versions,
		"all or nothing":           allOrNothing,
		"absence":                  absence,
		"one-shot watches":         oneShotWatches,
		"sessions":                 sessions,
		"expiry":                   expiry,
		"ephemerals have no child": ephemeralLeaf,
		"paths":                    paths,
		"data":                     data,
		"handles":                  handles,
	} {
		t.Run(name, func(t *testing.T) { part(t, start(t)) })
	}
}

func op(kind cluster.OpKind, path string, version int32) cluster.Op {
	return cluster.Op{Kind: kind, Path: path, Version: version, Data: []byte("x")}
}

func do(t testing.TB, c Conn, ops ...cluster.Op) []cluster.Result {
	t.Helper()
	results, err := c.Do(context.Background(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func refusal(t testing.TB, c Conn, index int, want error, ops ...cluster.Op) {
	t.Helper()
	_, err := c.Do(context.Background(), ops...)
	var tx *cluster.TxError
	if !errors.As(err, &tx) || tx.Index != index || !errors.Is(err, want) {
		t.Errorf("%v: got %v, want operation %d to fail with %v", ops, err, index, want)
	}
}

// hinted waits until there is a hint for a path, and returns all the hinted paths.
func hinted(t testing.TB, c cluster.Watcher, path string) map[string]struct{} {
	t.Helper()
	all := make(map[string]struct{})
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		for p := range c.TakeHints().Paths {
			all[p] = struct{}{}
		}
		if _, ok := all[path]; ok {
			return all
		}
		select {
		case <-c.Wake():
		case <-limit.C:
			t.Fatalf("%s was not hinted, only these were: %v", path, all)
		}
	}
}

func exists(t testing.TB, c Conn, path string) bool {
	t.Helper()
	_, _, err := c.Get(context.Background(), path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		t.Fatal(err)
	}
	return err == nil
}

func sequentialNames(t *testing.T, e Env) {
	c := e.Connect(t)
	create := func(prefix string) string {
		o := op(cluster.OpCreate, e.Root+"/"+prefix, 0)
		o.Sequential = true
		return strings.TrimPrefix(do(t, c, o)[0].Path, e.Root+"/")
	}
	// One counter for all prefixes, which deletes do not turn back and plain creates turn on.
	got := []string{create("a-n_"), create("b-n_")}
	do(t, c, op(cluster.OpDelete, e.Root+"/b-n_0000000001", 0))
	got = append(got, create("a-n_"))
	do(t, c, op(cluster.OpCreate, e.Root+"/plain", 0))
	got = append(got, create("c-n_"))
	// A transaction that is refused uses no number up.
	seq := op(cluster.OpCreate, e.Root+"/d-n_", 0)
	seq.Sequential = true
	refusal(t, c, 1, cluster.ErrNodeExists, seq, op(cluster.OpCreate, e.Root+"/plain", 0))
	got = append(got, create("d-n_"))
	want := []string{"a-n_0000000000", "b-n_0000000001", "a-n_0000000002", "c-n_0000000004", "d-n_0000000005"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func versions(t *testing.T, e Env) {
	c := e.Connect(t)
	x := e.Root + "/x"
	refusal(t, c, 0, cluster.ErrNoNode, op(cluster.OpCheck, x, cluster.AnyVersion))
	refusal(t, c, 0, cluster.ErrNoNode, op(cluster.OpSet, x, 0))
	refusal(t, c, 0, cluster.ErrNoNode, op(cluster.OpDelete, x, 0))
	do(t, c, op(cluster.OpCreate, x, 0))
	refusal(t, c, 0, cluster.ErrNodeExists, op(cluster.OpCreate, x, 0))
	if r := do(t, c, op(cluster.OpSet, x, 0), op(cluster.OpSet, x, 1)); r[0].Version != 1 || r[1].Version != 2 {
		t.Errorf("versions after two sets: %+v", r)
	}
	for _, kind := range []cluster.OpKind{cluster.OpCheck, cluster.OpSet, cluster.OpDelete} {
		refusal(t, c, 0, cluster.ErrBadVersion, op(kind, x, 1))
		refusal(t, c, 0, cluster.ErrBadVersion, op(kind, x, 3))
	}
	do(t, c, op(cluster.OpCheck, x, 2), op(cluster.OpCheck, x, cluster.AnyVersion))
	if _, stat, err := c.Get(context.Background(), x, false); err != nil || stat.Version != 2 || stat.Owner != 0 {
		t.Errorf("%+v, %v", stat, err)
	}
	do(t, c, op(cluster.OpCreate, x+"/y", 0))
	refusal(t, c, 0, cluster.ErrNotEmpty, op(cluster.OpDelete, x, 2))
	do(t, c, op(cluster.OpDelete, x+"/y", 0), op(cluster.OpDelete, x, 2))
	do(t, c, op(cluster.OpCreate, x, 0))
	if _, stat, err := c.Get(context.Background(), x, false); err != nil || stat.Version != 0 {
		t.Errorf("a znode that is created again starts with version %d, %v", stat.Version, err)
	}
}

func allOrNothing(t *testing.T, e Env) {
	c := e.Connect(t)
	x, y := e.Root+"/x", e.Root+"/y"
	do(t, c, op(cluster.OpCreate, x, 0))
	refusal(t, c, 2, cluster.ErrBadVersion,
		op(cluster.OpCreate, y, 0), op(cluster.OpSet, x, 0), op(cluster.OpCheck, x, 0), op(cluster.OpCreate, y, 0))
	if _, stat, err := c.Get(context.Background(), x, false); err != nil || stat.Version != 0 || exists(t, c, y) {
		t.Errorf("part of it was applied: version %d, %v", stat.Version, err)
	}
	// Each operation sees the effects of those before it.
	do(t, c, op(cluster.OpCreate, y, 0), op(cluster.OpCheck, y, 0), op(cluster.OpSet, y, 0), op(cluster.OpDelete, y, 1),
		op(cluster.OpDelete, x, 0))
	if exists(t, c, x) || exists(t, c, y) {
		t.Error("only part of it was applied")
	}
}

// absence tests how ELECT in a slot checks that a znode does not exist: it creates and deletes it in one transaction.
func absence(t *testing.T, e Env) {
	c, other := e.Connect(t), e.Connect(t)
	x, y := e.Root+"/x", e.Root+"/y"
	gone := []cluster.Op{op(cluster.OpCreate, x, 0), op(cluster.OpDelete, x, 0)}
	if _, _, err := other.Get(context.Background(), x, true); !errors.Is(err, cluster.ErrNoNode) {
		t.Fatal(err)
	}
	do(t, c, append(gone, op(cluster.OpCreate, y, 0))...)
	if exists(t, c, x) || !exists(t, c, y) {
		t.Error("it is left, or what comes after it was not applied")
	}
	hinted(t, other, x) // its reader reads again
	do(t, c, append(gone, gone...)...)
	do(t, c, op(cluster.OpCreate, x, 0))
	refusal(t, c, 1, cluster.ErrNodeExists, append([]cluster.Op{op(cluster.OpSet, y, 0)}, gone...)...)
	if _, stat, err := c.Get(context.Background(), y, false); err != nil || stat.Version != 0 || !exists(t, c, x) {
		t.Errorf("a refused check has changed something: %+v, %v", stat, err)
	}
	below := []cluster.Op{op(cluster.OpCreate, e.Root+"/none/x", 0), op(cluster.OpDelete, e.Root+"/none/x", 0)}
	refusal(t, c, 0, cluster.ErrNoNode, below...)
}

func oneShotWatches(t *testing.T, e Env) {
	c, other := e.Connect(t), e.Connect(t)
	x := e.Root + "/x"
	watch := func() {
		t.Helper()
		if _, _, err := c.Get(context.Background(), x, true); err != nil && !errors.Is(err, cluster.ErrNoNode) {
			t.Fatal(err)
		}
	}
	list := func(path string) {
		t.Helper()
		if _, _, err := c.Children(context.Background(), path, true); err != nil {
			t.Fatal(err)
		}
	}
	// A watch that has fired stays quiet: the hint for the marker comes after any other.
	marker := 0
	silence := func(path string) {
		t.Helper()
		marker++
		m := fmt.Sprintf("%s/marker%d", e.Root, marker)
		if _, _, err := c.Get(context.Background(), m, true); !errors.Is(err, cluster.ErrNoNode) {
			t.Fatal(err)
		}
		do(t, other, op(cluster.OpCreate, m, 0))
		if _, ok := hinted(t, c, m)[path]; ok {
			t.Errorf("%s is hinted again", path)
		}
	}
	watch() // does not exist yet
	do(t, other, op(cluster.OpCreate, x, 0))
	hinted(t, c, x)
	do(t, other, op(cluster.OpSet, x, 0))
	silence(x)
	watch()
	watch() // armed already
	do(t, c, op(cluster.OpSet, x, 1))
	hinted(t, c, x) // the session's own change
	silence(x)
	watch()
	list(x)
	do(t, other, op(cluster.OpCreate, x+"/y", 0))
	hinted(t, c, x)
	list(x)
	do(t, other, op(cluster.OpDelete, x+"/y", 0))
	hinted(t, c, x)
	do(t, other, op(cluster.OpDelete, x, 2))
	hinted(t, c, x)
	silence(x)
	list(e.Root)
	do(t, other, op(cluster.OpCreate, x, 0))
	hinted(t, c, e.Root)
}

func ephemeral(path string) cluster.Op {
	o := op(cluster.OpCreate, path, 0)
	o.Ephemeral = true
	return o
}

func sessions(t *testing.T, e Env) {
	owner, other := e.Connect(t), e.Connect(t)
	a, b := e.Root+"/a", e.Root+"/b"
	do(t, owner, ephemeral(a), ephemeral(b))
	if _, stat, err := other.Get(context.Background(), a, true); err != nil || stat.Owner != owner.SessionID() {
		t.Errorf("owner %x, session %x, %v", stat.Owner, owner.SessionID(), err)
	}
	if err := owner.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	hinted(t, other, a)
	// All of them vanish at once: a client that sees one gone sees the other gone.
	if exists(t, other, a) || exists(t, other, b) {
		t.Error("an ephemeral outlives its session")
	}
	if _, err := owner.Do(context.Background(), op(cluster.OpCreate, a, 0)); !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("a write after the end: %v", err)
	}
	if !errors.Is(owner.Err(), cluster.ErrSessionEnded) {
		t.Errorf("the reason: %v", owner.Err())
	}
}

func expiry(t *testing.T, e Env) {
	owner, other := e.Connect(t), e.Connect(t)
	a := e.Root + "/a"
	do(t, owner, ephemeral(a))
	if _, _, err := other.Get(context.Background(), a, true); err != nil {
		t.Fatal(err)
	}
	e.Expire(t, owner)
	hinted(t, other, a)
	if exists(t, other, a) {
		t.Error("an ephemeral outlives its session")
	}
	select {
	case <-owner.Done():
	case <-time.After(20 * time.Second):
		t.Error("its client does not learn of the end")
	}
}

func ephemeralLeaf(t *testing.T, e Env) {
	c := e.Connect(t)
	do(t, c, ephemeral(e.Root+"/a"))
	refusal(t, c, 0, cluster.ErrEphemeralLeaf, op(cluster.OpCreate, e.Root+"/a/b", 0))
	refusal(t, c, 0, cluster.ErrNoNode, op(cluster.OpCreate, e.Root+"/none/b", 0))
}

func paths(t *testing.T, e Env) {
	c := e.Connect(t)
	for _, name := range []string{"with blank", "<img onerror=x>", `quo"te`, "ünï-码", "-n_", "a.b"} {
		do(t, c, op(cluster.OpCreate, e.Root+"/"+name, 0))
		if !exists(t, c, e.Root+"/"+name) {
			t.Errorf("%q is lost", name)
		}
	}
	for _, name := range []string{".", "..", "\x01", "\u0085", "\ufff1"} {
		refusal(t, c, 0, cluster.ErrInvalid, op(cluster.OpCreate, e.Root+"/"+name, 0))
	}
}

func data(t *testing.T, e Env) {
	c := e.Connect(t)
	for name, want := range map[string][]byte{"empty": {}, "big": slices.Repeat([]byte("x"), 900<<10), "zero": {0}} {
		do(t, c, cluster.Op{Kind: cluster.OpCreate, Path: e.Root + "/" + name, Data: want})
		got, _, err := c.Get(context.Background(), e.Root+"/"+name, false)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
}
