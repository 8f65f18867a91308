package cluster

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

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
