package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/zk"
)

func ensures(t *testing.T, conn cluster.ReadWriter, base, name, root string) {
	t.Helper()
	if err := EnsureIdentity(t.Context(), conn, base, name, cluster.Identity{Root: root, Kind: cluster.KindSingle}); err != nil {
		t.Fatalf("group %s with the root %s: %v", name, root, err)
	}
}

func refuses(t *testing.T, conn cluster.ReadWriter, base, name, root string, words ...string) {
	t.Helper()
	err := EnsureIdentity(t.Context(), conn, base, name, cluster.Identity{Root: root, Kind: cluster.KindSingle})
	contains(t, err, append(words, "group "+name+": ")...)
}

func put(t *testing.T, conn cluster.ReadWriter, path, data string) {
	t.Helper()
	kind, version := cluster.OpCreate, int32(0)
	if _, stat, err := conn.Get(t.Context(), path, false); err == nil {
		kind, version = cluster.OpSet, stat.Version
	}
	if _, err := conn.Do(t.Context(), cluster.Op{Kind: kind, Path: path, Version: version, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

// Hosts whose configurations have different roots for one group would elect two leaders: the second one is refused.
func TestHostsMustAgreeOnTheRoot(t *testing.T) {
	conn := storetest.NewServer().Connect()
	ensures(t, conn, "/zkelectd", "billing", "/zkelectd/billing")
	ensures(t, conn, "/zkelectd", "billing", "/zkelectd/billing")
	refuses(t, conn, "/zkelectd", "billing", "/billing", "/zkelectd/billing", " /billing:", "elect two leaders")

	ensures(t, conn, "/zkelectd", "mail", "/mail")
	refuses(t, conn, "/zkelectd", "mail", "/zkelectd/mail", "/mail", "/zkelectd/mail")
	// A daemon with this group alone has the same root.
	ensures(t, conn, "/", "mail", "/mail")
	refuses(t, conn, "/zkelectd", "mail", "/other/mail", "/mail")
}

// interrupted calls before once, before the first transaction with at least that many operations that begins at path.
type interrupted struct {
	cluster.ReadWriter
	path   string
	ops    int
	before func()
}

func (i *interrupted) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	if before := i.before; before != nil && ops[0].Path == i.path && len(ops) >= i.ops {
		i.before = nil
		before()
	}
	return i.ReadWriter.Do(ctx, ops...)
}

func TestOfHostsThatDisagreeAtTheSameTimeOneIsRefused(t *testing.T) {
	for _, exists := range []bool{false, true} {
		conn := storetest.NewServer().Connect()
		put(t, conn, "/zkelectd", "")
		if exists {
			put(t, conn, "/zkelectd/billing", "")
		}
		slower := &interrupted{conn, "/zkelectd/billing", 1, func() { ensures(t, conn, "/zkelectd", "billing", "/zkelectd/billing") }}
		refuses(t, slower, "/zkelectd", "billing", "/billing", "elect two leaders")
		ensures(t, conn, "/zkelectd", "billing", "/zkelectd/billing")
	}
}

func TestGroupsMustNotBeNested(t *testing.T) {
	conn := storetest.NewServer().Connect()
	ensures(t, conn, "/a", "billing", "/a/billing")
	refuses(t, conn, "/a/billing", "leader", "/a/billing/leader", "znode /a/billing belongs to a group", "/a/billing/leader")
	refuses(t, conn, "/a", "deep", "/a/billing/x/y", "znode /a/billing belongs to a group")
	refuses(t, conn, "/", "a", "/a", "/a/billing is a group", "groups_dir")
	if _, _, err := conn.Get(t.Context(), "/a/billing/x", false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("a refused group left a znode: %v", err)
	}
	if data, _, err := conn.Get(t.Context(), "/a", false); err != nil || len(data) > 0 {
		t.Errorf("a refused group left %q, %v", data, err)
	}
}

// What this version does not know, and what is not its own, is left alone.
func TestIdentitiesOfOthers(t *testing.T) {
	for data, want := range map[string]string{
		`{"v":2,"root":"/zkelectd/billing","kind":"single"}`: "upgrade this host",
		`{"v":1,"root":"/zkelectd/billing","kind":"slots"}`:  "records a group with slots, but the configuration of this host has none",
		`{"v":1,"root":"/zkelectd/billing","kind":"ring"}`:   `the kind "ring", which this zkelectd does not know: upgrade this host`,
		`{"v":1,"root":"/zkelectd/billing"}`:                 "kind is missing",
		`{"v":1,"kind":"single"}`:                            "root",
		`hello`:                                              "is not a zkelectd record",
	} {
		conn := storetest.NewServer().Connect()
		put(t, conn, "/zkelectd", "")
		put(t, conn, "/zkelectd/billing", data)
		refuses(t, conn, "/zkelectd", "billing", "/zkelectd/billing", want, "znode /zkelectd/billing")
		if now, _, err := conn.Get(t.Context(), "/zkelectd/billing", false); err != nil || string(now) != data {
			t.Errorf("changed to %q, %v", now, err)
		}
	}
}

func TestFindGroups(t *testing.T) {
	conn := storetest.NewServer().Connect()
	ctx := t.Context()
	if groups, single, err := Groups(ctx, conn, "/cluster"); err != nil || single || len(groups) != 0 {
		t.Errorf("without any znode: %+v, %t, %v", groups, single, err)
	}
	p := cluster.Paths{Root: "/cluster"}
	if err := EnsureTree(ctx, conn, p); err != nil {
		t.Fatal(err)
	}
	put(t, conn, p.Leader(), `{"v":9}`)
	if groups, single, err := Groups(ctx, conn, "/cluster"); err != nil || !single || len(groups) != 1 || groups[0].Root != "/cluster" {
		t.Errorf("one group: %+v, %t, %v", groups, single, err)
	}
	if g, err := FindGroup(ctx, conn, "/cluster", "cluster"); err != nil || g.Root != "/cluster" {
		t.Errorf("by its name: %+v, %v", g, err)
	}
	if _, err := FindGroup(ctx, conn, "/cluster", "billing"); !errors.Is(err, ErrNoGroup) {
		t.Errorf("another: %v", err)
	}
	ensures(t, conn, "/zkelectd", "mail", "/mail")
	ensures(t, conn, "/zkelectd", "billing", "/zkelectd/billing")
	put(t, conn, "/zkelectd/other", "not a record")
	put(t, conn, "/zkelectd/newer", `{"v":2,"root":"/zkelectd/newer"}`)
	groups, single, err := Groups(ctx, conn, "/zkelectd")
	var names []string
	for _, g := range groups {
		names = append(names, g.Name+" "+g.Root)
	}
	if want := []string{"billing /zkelectd/billing", "mail /mail", "newer "}; err != nil || single || !slices.Equal(names, want) {
		t.Errorf("got %q, %t, %v, want %q", names, single, err, want)
	}
	if g, err := FindGroup(ctx, conn, "/zkelectd", "mail"); err != nil || g.Root != "/mail" {
		t.Errorf("mail: %+v, %v", g, err)
	}
	if _, err := FindGroup(ctx, conn, "/zkelectd", "newer"); err == nil || !strings.Contains(err.Error(), "upgrade this host") {
		t.Errorf("newer: %v", err)
	}
	if _, err := FindGroup(ctx, conn, "/zkelectd", "missing"); !errors.Is(err, ErrNoGroup) || !strings.Contains(err.Error(), `"missing" below /zkelectd; there are billing, mail`) {
		t.Errorf("missing: %v", err)
	}
}

// What to do about a damaged record depends on the znode: repair knows the root only, and what belongs to no group is left alone.
func TestAdviceForADamagedRecord(t *testing.T) {
	s := open(t, zk.Options{})
	create := func(path, data string) {
		t.Helper()
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	base := root(t, s).Root + "-base"
	create(base, "")
	create(base+"/name", "garbage")
	create(base+"/other", "garbage")
	create(base+"/group", "")
	ensure := func(name, root string) string {
		return fmt.Sprint(EnsureIdentity(t.Context(), s, base, name, cluster.Identity{Root: root, Kind: cluster.KindSingle}))
	}
	if got := ensure("other", base+"/other"); !strings.Contains(got, "it is not the record of a group: choose another zookeeper.root") {
		t.Error(got)
	}
	create(base+"/group/election", "")
	create(base+"/other/election", "")
	if got := ensure("other", base+"/other"); !strings.Contains(got, "run 'zkelectd repair root --root "+base+"/other'") {
		t.Error(got)
	}
	if got := ensure("name", base+"/group"); !strings.Contains(got, "zookeeper.root of the group is "+base+"/group on all hosts, delete it with 'delete "+base+"/name' in zkCli.sh") {
		t.Error(got)
	}
}

// A root gets one id, from the host that creates it or the first member that sees none, and keeps it. A name gets none.
func TestARootGetsOneID(t *testing.T) {
	s := open(t, zk.Options{})
	base := root(t, s).Root + "-ids"
	own := cluster.Identity{Root: base + "/elsewhere", Kind: cluster.KindSingle}
	ensure := func(id string) string {
		t.Helper()
		own := own
		own.ID = id
		if err := EnsureIdentity(t.Context(), s, base, "name", own); err != nil {
			t.Fatal(err)
		}
		name, err := readIdentity(t.Context(), s, base+"/name")
		if err != nil || name.Record.ID != "" || name.Record.Root != own.Root {
			t.Errorf("the name: %+v, %v", name.Record, err)
		}
		read, err := ReadIdentity(t.Context(), s, cluster.Paths{Root: own.Root})
		if err != nil || !read.Readable() {
			t.Fatal(read.Err, err)
		}
		return read.Record.ID
	}
	write := func(text string) {
		t.Helper()
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: own.Root, Data: []byte(text), Version: cluster.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"", "A", "B"} {
		if got, want := ensure(id), []string{"", "A", "A"}[i]; got != want {
			t.Errorf("after a member with %q: %q", id, got)
		}
	}
	write(`{"v":1,"root":"` + own.Root + `","kind":"single","added":7}`) // by an earlier version, or a later one
	if got := ensure("C"); got != "C" {
		t.Errorf("a root without an id got %q", got)
	}
	if data, _, err := s.Get(t.Context(), own.Root, false); err != nil || !strings.Contains(string(data), `"added":7`) {
		t.Errorf("%s, %v", data, err)
	}
	for _, text := range []string{"garbage", `{"v":1,"root":"` + own.Root + `","kind":"single"}`, `{"v":1,"root":"` + own.Root + `","kind":"single","id":"` + strings.Repeat("x", 65) + `"}`} {
		write(text)
		own := own
		own.ID = "D"
		restored, err := RestoreIdentity(t.Context(), s, base, "name", own)
		if err != nil || fmt.Sprint(restored) != "["+own.Root+"]" || ensure("E") != "D" {
			t.Errorf("%s: restored %s, %v", text, restored, err)
		}
	}
}
