package cluster

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// relocation moves a group that has led, to a root that was used before.
func relocation() Relocation {
	old := Fence{
		Term: 7, Node: "n1", Site: "dc1", Host: "h1", API: "n1:80", Incarnation: "n1-n_1", State: FenceReady, Owed: Duration(9 * time.Second),
		Earlier: []EarlierHolder{{Node: "n0", Wait: Duration(9 * time.Second)}}, LeaseWait: Duration(4 * time.Second), Kill: Duration(time.Second),
		RevokeTimeout: Duration(3 * time.Second),
	}
	r := Relocation{By: "bob", Wall: time.Unix(1_800_000_000, 0).UTC()}
	r.From = RootState{
		Paths: Paths{Root: "/old"}, Identity: Stored[Identity]{Exists: true, Stat: Stat{Version: 1}, Record: Identity{Root: "/old", Kind: KindSingle}},
		Nodes: Stat{Version: 2}, Election: Stat{Version: 3}, Policy: []byte("p"), Roster: []byte("r"), History: []byte("h"),
	}
	r.From.Snapshot.Fence = Stored[Fence]{Exists: true, Stat: Stat{Version: 4}, Record: old}
	r.From.Snapshot.Elected = Stored[Elected]{Exists: true, Stat: Stat{Version: 5}, Record: Elected{Term: 7}}
	r.From.Snapshot.Control = Stored[Control]{Exists: true, Stat: Stat{Version: 6}, Record: Control{Cordons: []Cordon{{Node: "n2"}}}}
	r.To = RootState{Paths: Paths{Root: "/new"}, HistoryStat: Stat{Version: 12}}
	r.To.Identity = Stored[Identity]{Exists: true, Stat: Stat{Version: 7}}
	r.To.Snapshot.Fence = Stored[Fence]{Exists: true, Stat: Stat{Version: 8}, Record: Fence{Term: 5, State: FenceReleased}}
	r.To.Snapshot.Elected = Stored[Elected]{Exists: true, Stat: Stat{Version: 9}, Record: Elected{Term: 5}}
	r.To.Snapshot.Control = Stored[Control]{Exists: true, Stat: Stat{Version: 10}}
	r.To.Snapshot.Policy = Stored[Policy]{Exists: true, Stat: Stat{Version: 11}}
	return r
}

// Whoever takes over below the new root waits as after a holder that did not release, and can fence it (S1).
func TestTheFenceOfAMovedGroup(t *testing.T) {
	r := relocation()
	want := r.From.Snapshot.Fence.Record
	want.Incarnation, want.State, want.LeaseWait = "", FenceRevoked, Duration(9*time.Second)
	want.Reason, want.Requested, want.Time = "moved from the root /old by bob", true, r.Wall
	if got := r.Fence(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	r.From.Snapshot.Fence.Record.Owed = 0
	if got := r.Fence().LeaseWait; got != Duration(4*time.Second) {
		t.Errorf("waits for %s", got)
	}
	r.To.Snapshot.Elected.Record.Term = 12
	if got := r.Fence().Term; got != 12 {
		t.Errorf("term %d: terms must grow below the new root as well", got)
	}
}

// Each operation closes a hole: no daemon is a member of the group while it is moved, and none leads below either root by what was decided.
func TestTheMoveOfAGroup(t *testing.T) {
	ops := func(r Relocation) (all []string, data map[string]string) {
		data = make(map[string]string)
		for _, op := range r.Tx() {
			data[op.Path] = string(op.Data)
		}
		return Brief(r.Tx(), plain), data
	}
	r := relocation()
	got, data := ops(r)
	want := []string{
		"delete /old/election@3", "delete /old/nodes@2", "check /old/leader@4", "set /old@1", "set /new@7", "set /old/control@6", "set /new/control@10",
		"set /new/leader@8..16", "delete /old/leader/elected@5", "delete /new/leader/elected@9", "set /new/policy@11", "create /new/roster@0",
		"create /new/history@0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	for path, text := range map[string]string{
		"/old": `"root":"/new"`, "/new": `"kind":"single"`, "/new/leader": `"REVOKED"`, "/new/policy": "p", "/new/roster": "r", "/new/history": "h",
		"/new/control": `"n2"`,
	} {
		if !strings.Contains(data[path], text) {
			t.Errorf("%s: %s, want %s", path, data[path], text)
		}
	}
	pause := ReadStored[Control]("/old/control", []byte(data["/old/control"]), Stat{}, true).Record
	if p := pause.Pause; p == nil || !p.Hard || p.MovedTo != "/new" || p.By != "bob" || p.Reason != "the group was moved" || !p.Time.Equal(r.Wall) || p.ID == 0 {
		t.Errorf("the old group: %+v", pause.Pause)
	}
	if pause.LastRequest != "move of the group to /new by bob" {
		t.Errorf("the last request: %s", pause.LastRequest)
	}
	if next := ReadStored[Control]("/new/control", []byte(data["/new/control"]), Stat{}, true).Record; next.Pause != nil {
		t.Errorf("the new group is paused: %+v", next.Pause)
	}

	r = relocation() // neither was elected, and a name is recorded
	r.From.Snapshot.Elected, r.To.Snapshot.Elected = Stored[Elected]{}, Stored[Elected]{}
	r.NamePath, r.Name = "/groups/old", Stored[Identity]{Exists: true, Stat: Stat{Version: 13}}
	r.From.Policy, r.From.Roster, r.To.History = nil, nil, []byte("x")
	got, data = ops(r)
	want = []string{
		"delete /old/election@3", "delete /old/nodes@2", "check /old/leader@4", "set /old@1", "set /new@7", "set /groups/old@13", "set /old/control@6",
		"set /new/control@10", "set /new/leader@8..16", "set /new/history@12",
	}
	if !slices.Equal(got, want) || !strings.Contains(data["/groups/old"], `"root":"/new"`) {
		t.Errorf("\n got %q %s\nwant %q", got, data["/groups/old"], want)
	}
}

// The pause of an earlier move ends when the group comes back; one by a person stays.
func TestThePauseOfAMovedGroup(t *testing.T) {
	for movedTo, stays := range map[string]bool{"": true, "/new": false} {
		r := relocation()
		r.From.Snapshot.Control.Record.Pause = &Pause{Request: Request{By: "ann", Reason: "a reason"}, MovedTo: movedTo}
		r.From.Snapshot.Control.Record.Scheduled = []ScheduledMove{{Move: Move{Node: "n2"}, After: Duration(time.Hour), Grace: Duration(time.Minute)}}
		r.From.Snapshot.Control.Stat.Time = r.Wall
		for _, op := range r.Tx() {
			c := ReadStored[Control](op.Path, op.Data, Stat{}, true).Record
			switch op.Path {
			case "/new/control":
				if (c.Pause != nil) != stays || len(c.Scheduled) != 1 || !c.Scheduled[0].Due.Equal(r.Wall.Add(time.Hour)) {
					t.Errorf("moved to %q: %s", movedTo, op.Data)
				}
			case "/old/control":
				if len(c.Scheduled) != 0 {
					t.Errorf("the old group keeps what is scheduled: %s", op.Data)
				}
			}
		}
	}
}

func TestGroupsThatAreNotMoved(t *testing.T) {
	bound := &Failsafe{Key: "k", Members: []FailsafeMember{{"n2", "n2-n_1", "k2"}}}
	newer := &NewerVersionError{}
	for name, c := range map[string]struct {
		change func(*Relocation)
		want   string // empty: it is moved
	}{
		"it has led":                  {func(*Relocation) {}, ""},
		"it was there before":         {func(r *Relocation) { r.To.Identity.Record = Identity{Root: "/old", Kind: KindSingle} }, ""},
		"another one is there":        {func(r *Relocation) { r.To.Identity.Record = Identity{Root: "/other", Kind: KindSingle} }, "/other"},
		"one with slots was there":    {func(r *Relocation) { r.To.Identity.Record = Identity{Root: "/old", Kind: KindSlots} }, "says that the group's root is /old"},
		"a newer old fence":           {func(r *Relocation) { r.From.Snapshot.Fence.Err = newer }, newer.Error()},
		"a newer fence there":         {func(r *Relocation) { r.To.Snapshot.Fence.Err = newer }, newer.Error()},
		"a newer identity":            {func(r *Relocation) { r.From.Identity.Err = newer }, newer.Error()},
		"a newer name":                {func(r *Relocation) { r.Name.Err = newer }, newer.Error()},
		"the fence is damaged":        {func(r *Relocation) { r.From.Snapshot.Fence.Err = errors.New("damaged") }, "never had a leader"},
		"it has never led":            {func(r *Relocation) { r.From.Snapshot = Snapshot{Fence: Stored[Fence]{Exists: true}} }, "never had a leader"},
		"damaged requests":            {func(r *Relocation) { r.From.Snapshot.Control.Err = errors.New("damaged") }, "repair"},
		"a damaged policy":            {func(r *Relocation) { r.From.Snapshot.Policy.Err = errors.New("damaged") }, "repair"},
		"it has slots":                {func(r *Relocation) { r.From.Identity.Record.Kind = KindSlots }, "has slots"},
		"it has a leader":             {func(r *Relocation) { r.From.Snapshot.Current.Exists = true }, "/old/leader/current exists"},
		"there is a leader":           {func(r *Relocation) { r.To.Snapshot.Current.Exists = true }, "/new/leader/current exists"},
		"members have promised":       {func(r *Relocation) { r.From.Snapshot.Fence.Record.Failsafe = bound }, "n1 may still lead in term 7"},
		"members there have promised": {func(r *Relocation) { r.To.Snapshot.Fence.Record = Fence{Term: 5, Node: "n5", Failsafe: bound} }, "n5 may still lead in term 5"},
	} {
		r := relocation()
		c.change(&r)
		switch err := r.Check(); {
		case (err == nil) != (c.want == ""):
			t.Errorf("%s: %v", name, err)
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
