package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func fullControl() Control {
	request := func(id int64) Request {
		return Request{ID: id, By: "ann@host", Reason: "new kernel", For: Duration(time.Hour), Remaining: Duration(time.Minute), Time: noon}
	}
	elect := request(3)
	return Control{
		Last: 9, LastRequest: "pause by ann@host",
		Pause: &Pause{Request: request(1), Hard: true}, Move: &Move{Request: request(2), Node: "a", Force: true}, Reelect: &elect,
		Moves: []Move{{Request: ofSlot3(request(8)), Node: "d"}}, Reelections: []Request{ofSlot3(request(9))},
		Cordons:        []Cordon{{Request: request(4), Node: "b"}, {Request: request(5), Site: "dc1", Drain: true}},
		ClearedStrikes: []ClearedStrikes{{Request: request(6), Node: "c", Term: 7}},
		Proposals:      []Proposal{{Request: request(10), Term: 8, Node: "d", Site: "dc2", Cause: CauseFailure}},
		Done:           []Done{{ID: 7, What: "pause", Outcome: "ended", Time: noon}},
	}
}

func ofSlot3(r Request) Request {
	r.Slot = "3"
	return r
}

func TestRequestsAreNumberedConsecutively(t *testing.T) {
	c := Control{Last: 41}
	given := Request{ID: 3, By: "ann@host", Reason: "why", For: Duration(time.Hour), Remaining: Duration(time.Second), Time: noon}
	want := given
	want.ID, want.Remaining = 42, given.For
	if got := c.Next(given); got != want || c.Last != 42 {
		t.Errorf("%+v, the last is %d", got, c.Last)
	}
	if got := c.Next(Request{}); got.ID != 43 || got.Remaining != 0 {
		t.Errorf("then %+v", got)
	}
}

// Numbers continue after the last known one, up to the limit.
func TestRequestNumbersContinueUpToALimit(t *testing.T) {
	for _, c := range []struct{ last, decided, want int64 }{
		{5, 9, 9}, {9, 5, 9}, {0, MaxRequest - 1, MaxRequest - 1}, {3, MaxRequest, 3}, {3, MaxRequest + 1, 3},
	} {
		control := Control{Last: c.last}
		if control.Continue(c.decided); control.Last != c.want {
			t.Errorf("after %d and %d comes %d", c.last, c.decided, control.Last)
		}
	}
	if err := (&Control{Last: MaxRequest - 1}).Exhausted(); err != nil {
		t.Error(err)
	}
	if (&Control{Last: MaxRequest}).Exhausted() == nil {
		t.Error("there is none after the last")
	}
}

// Numbers and durations that no request can have are damage, in any order.
func TestOverflowingRequestsAreDamage(t *testing.T) {
	for text, ok := range map[string]bool{
		`"last":0`: true, `"last":4503599627370496`: true, `"last":4503599627370497`: false, `"last":-1`: false,
		`"move":{"id":4503599627370497}`: false, `"pause":{"id":-1}`: false, `"reelect":{"id":-1}`: false, `"reelect":{"id":7}`: true,
		`"cordons":[{"id":1},{"id":2,"for":"87600h"}]`: true, `"cordons":[{"id":1},{"id":2,"for":"87601h"}]`: false,
		`"pause":{"id":1,"for":"1h","remaining":"87601h"}`: false,
	} {
		if s := ReadStored[Control]("/c/control", []byte(`{"v":1,`+text+`}`), Stat{}, true); s.Readable() != ok {
			t.Errorf("%s: %v", text, s.Err)
		}
	}
}

func TestOnlyTheLastOutcomesAreKept(t *testing.T) {
	var c Control
	for i := range int64(50) {
		before := slices.Clone(c.Done)
		shared := c
		c.End(i, fmt.Sprintf("request %d", i), "done", noon)
		if !slices.Equal(shared.Done, before) {
			t.Fatalf("end %d changed a copy: %+v", i, shared.Done)
		}
		if shared.End(i, "another", "done", noon); c.Done[len(c.Done)-1].What == "another" {
			t.Fatalf("end %d of a copy changed the original", i)
		}
	}
	if len(c.Done) != maxDone || c.Done[0].ID != 30 || c.Done[maxDone-1].ID != 49 {
		t.Fatalf("%d kept: %+v", len(c.Done), c.Done)
	}
	want := Done{ID: 49, What: "request 49", Outcome: "done", Time: noon}
	if got, ok := c.Ended(49); !ok || got != want {
		t.Errorf("%+v %t", got, ok)
	}
	if got, ok := c.Ended(29); ok {
		t.Errorf("a dropped one is still known: %+v", got)
	}
}

func TestEachVisitsRequestsThatMayEnd(t *testing.T) {
	c := fullControl()
	var seen []int64
	c.Each(func(o *Request) {
		seen = append(seen, o.ID)
		o.Remaining = Duration(7 * time.Second)
	})
	if !slices.Equal(seen, []int64{1, 2, 8, 4, 5, 10}) {
		t.Errorf("visited %v", seen)
	}
	for _, o := range []Request{c.Pause.Request, c.Move.Request, c.Cordons[0].Request, c.Cordons[1].Request} {
		if time.Duration(o.Remaining) != 7*time.Second {
			t.Errorf("request %d was visited as a copy", o.ID)
		}
	}
	new(Control).Each(func(*Request) { t.Error("visited a request of an empty record") })
}

func TestACloneSharesNothingMutable(t *testing.T) {
	c := fullControl()
	d := c.Clone()
	if !reflect.DeepEqual(c, d) {
		t.Fatalf("%+v, of %+v", d, c)
	}
	d.Pause.Hard, d.Pause.Remaining = false, 0
	d.Move.Node, d.Reelect.By = "z", "z"
	d.Cordons[0].Node, d.ClearedStrikes[0].Node, d.Done[0].What = "z", "z", "z"
	d.Cordons = append(d.Cordons[:1], Cordon{Node: "y"})
	d.End(99, "x", "y", noon)
	if !reflect.DeepEqual(c, fullControl()) {
		t.Errorf("the original has changed: %+v", c)
	}
	if empty := (Control{}).Clone(); !reflect.DeepEqual(empty, Control{}) {
		t.Errorf("of an empty record: %+v", empty)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		node, site, id, at string
		want               bool
	}{
		{"a", "", "a", "dc1", true},
		{"a", "", "b", "dc1", false},
		{"", "dc1", "b", "dc1", true},
		{"", "dc1", "b", "dc2", false},
		{"a", "", "b", "", false},
		{"", "dc1", "", "", false},
		{"a", "", "", "", false},
	} {
		if got := (Move{Node: c.node, Site: c.site}).Matches(c.id, c.at); got != c.want {
			t.Errorf("move %+v: %t", c, got)
		}
		if got := (Cordon{Node: c.node, Site: c.site}).Matches(c.id, c.at); got != c.want {
			t.Errorf("cordon %+v: %t", c, got)
		}
	}
}

func TestClearedStrikesCoverEarlierStrikesOnly(t *testing.T) {
	for name, c := range map[string]struct {
		f    ClearedStrikes
		x    Exclusion
		want bool
	}{
		"earlier":             {ClearedStrikes{Node: "a", Term: 7}, Exclusion{Node: "a", Term: 6}, true},
		"of the term itself":  {ClearedStrikes{Node: "a", Term: 7}, Exclusion{Node: "a", Term: 7}, false},
		"later":               {ClearedStrikes{Node: "a", Term: 7}, Exclusion{Node: "a", Term: 8}, false},
		"of another node":     {ClearedStrikes{Node: "a", Term: 7}, Exclusion{Node: "b", Term: 6}, false},
		"of any":              {ClearedStrikes{Term: 7}, Exclusion{Node: "b", Term: 6}, true},
		"of any, but a later": {ClearedStrikes{Term: 7}, Exclusion{Node: "b", Term: 7}, false},
	} {
		if got := c.f.Covers(c.x); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRequestDescriptions(t *testing.T) {
	o := Request{By: "ann@host"}
	why := Request{By: "ann@host", Reason: "new kernel"}
	for want, got := range map[string]string{
		"by ann@host":                                 o.String(),
		"by ann@host: new kernel":                     why.String(),
		"cordoned by ann@host":                        Cordon{Request: o, Node: "a"}.Describe(),
		"drained by ann@host: new kernel":             Cordon{Request: why, Node: "a", Drain: true}.Describe(),
		"site dc1 is cordoned by ann@host":            Cordon{Request: o, Site: "dc1"}.Describe(),
		"site dc1 is drained by ann@host: new kernel": Cordon{Request: why, Site: "dc1", Drain: true}.Describe(),
		"a": Cordon{Node: "a"}.Target(), "site dc1": Move{Site: "dc1"}.Target(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAFullRecordCanBeRead(t *testing.T) {
	var c Control
	for !c.Full() {
		o := c.Next(Request{By: strings.Repeat("u", 128), Reason: strings.Repeat("r", 500), For: Duration(time.Hour), Time: noon})
		if len(c.Cordons) > len(c.ClearedStrikes) {
			c.ClearedStrikes = append(c.ClearedStrikes, ClearedStrikes{Request: o, Node: strings.Repeat("n", 128)})
		} else {
			c.Cordons = append(c.Cordons, Cordon{Request: o, Node: strings.Repeat("n", 128)})
		}
	}
	if n := len(c.Cordons) + len(c.ClearedStrikes); n != maxRequests {
		t.Errorf("full with %d requests", n)
	}
	if n := len(Encode(&c)); n > MaxRecord {
		t.Errorf("%d bytes", n)
	}
}

func TestNilAndEmptyRulesHaveTheSameDigest(t *testing.T) {
	none := Rules{Type: "priority"}
	empty := Rules{
		Type: "priority", Rank: []string{}, Strategies: []Strategy{}, Sites: map[string]int{}, Filter: []string{},
	}
	if none.Digest() != empty.Digest() || len(none.Digest()) != 8 {
		t.Errorf("%s and %s", none.Digest(), empty.Digest())
	}
}

func TestEveryRuleAffectsTheDigest(t *testing.T) {
	seen := map[string]string{(Rules{}).Digest(): "none"}
	for i := range reflect.TypeFor[Rules]().NumField() {
		var r Rules
		field := reflect.ValueOf(&r).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int, reflect.Int64:
			field.SetInt(3)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
			field.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(field.Type().Elem()))
		case reflect.Struct:
			field.FieldByName("Enabled").SetBool(true)
		}
		name := reflect.TypeFor[Rules]().Field(i).Name
		if other, taken := seen[r.Digest()]; taken {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[r.Digest()] = name
	}
}

func drawSlotControl(t *rapid.T) Control {
	slot := rapid.SampledFrom([]string{"", "0", "1", "2"})
	var c Control
	for range rapid.IntRange(0, 6).Draw(t, "requests") {
		r := c.Next(Request{By: "ann@host"})
		r.Slot = slot.Draw(t, "slot")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			if r.Slot != "" && c.OfSlot(r.Slot).Move == nil {
				c.Moves = append(c.Moves, Move{Request: r, Node: "a"})
			}
		case 1:
			if r.Slot != "" && c.OfSlot(r.Slot).Reelect == nil {
				c.Reelections = append(c.Reelections, r)
			}
		case 2:
			c.Cordons = append(c.Cordons, Cordon{Request: r, Node: "b"})
		case 4:
			c.Proposals = append(c.Proposals, Proposal{Request: r, Term: 7, Node: "d"})
		case 3:
			c.ClearedStrikes = append(c.ClearedStrikes, ClearedStrikes{Request: r, Term: 7})
		}
	}
	return c
}

// Each slot has its own requests and those of the whole group; what one slot writes does not change those of another.
func TestRequestsOfASlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSlotControl(t)
		before := c.Clone()
		for _, slot := range []string{"0", "1", "2"} {
			own := c.OfSlot(slot)
			if !reflect.DeepEqual(own.Whole(), c) || !reflect.DeepEqual(own.Clone().Whole(), c) {
				t.Fatalf("slot %s: %+v became %+v", slot, c, own.Whole())
			}
			for _, x := range own.Cordons {
				if x.Slot != "" && x.Slot != slot {
					t.Fatalf("slot %s has %+v", slot, x)
				}
			}
			other := "0"
			if slot == "0" {
				other = "1"
			}
			ended := own.Clone()
			ended.Move, ended.Cordons = nil, nil
			r := ended.Next(Request{By: "bob@host"})
			ended.Reelect = &r
			whole := ended.Whole()
			if got := whole.OfSlot(slot); got.Move != nil || got.Cordons != nil || got.Reelect == nil || got.Reelect.By != "bob@host" || got.Reelect.Slot != slot {
				t.Fatalf("slot %s: %+v", slot, got)
			}
			got, was := whole.OfSlot(other), c.OfSlot(other)
			if !reflect.DeepEqual(got.Move, was.Move) || !reflect.DeepEqual(got.Reelect, was.Reelect) || !reflect.DeepEqual(got.ClearedStrikes, was.ClearedStrikes) {
				t.Fatalf("slot %s has changed slot %s:\n%+v\nwas\n%+v", slot, other, got, was)
			}
		}
		if !reflect.DeepEqual(c, before) {
			t.Fatal("modified its input")
		}
	})
}

// The requests of a group with one leader have no slot, and one of a slot is written together with those of the others.
func TestControlOfASlotIsWrittenWhole(t *testing.T) {
	c := Control{Move: &Move{Node: "a"}}
	if got := c.OfSlot(""); got.Move != c.Move || got.Whole().Move != c.Move {
		t.Errorf("%+v", got)
	}
	all := Control{Moves: []Move{{Request: Request{ID: 1, Slot: "0"}, Node: "a"}, {Request: Request{ID: 2, Slot: "1"}, Node: "b"}}}
	write := Paths{Root: "/c"}.ControlTx("", Stored[Control]{}, all.OfSlot("1"))
	got := ReadStored[Control]("/c/control", write[0].Data, Stat{}, true)
	if !got.Readable() || !reflect.DeepEqual(got.Record.Moves, all.Moves) || got.Record.Move != nil {
		t.Errorf("written: %s", write[0].Data)
	}
	one := Paths{Root: "/c"}.OfSlot(1)
	if own := one.ReadControl(write[0].Data, Stat{}, true); own.Record.Move == nil || own.Record.Move.Node != "b" {
		t.Errorf("read for slot 1: %+v", own.Record)
	}
}
