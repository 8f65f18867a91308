package cluster

import (
	"cmp"
	"slices"
)

// OfSlot returns the requests that concern a slot: its own and those of the whole group. Move and Reelect are those of
// the slot. The result keeps the requests of the other slots for [Control.Whole]. The requests of a group with one
// leader, whose slot is "", stay as they are. c may already be the result for any slot.
func (c Control) OfSlot(slot string) Control {
	c = c.Whole()
	if slot == "" {
		return c
	}
	var moves []Move
	var reelections []Request
	other := new(Control)
	moves, other.Moves = ofSlot(c.Moves, slot)
	reelections, other.Reelections = ofSlot(c.Reelections, slot)
	c.Cordons, other.Cordons = ofSlot(c.Cordons, slot)
	c.ClearedStrikes, other.ClearedStrikes = ofSlot(c.ClearedStrikes, slot)
	c.Proposals, other.Proposals = ofSlot(c.Proposals, slot)
	c.Move, c.Moves, c.Reelect, c.Reelections = only(moves), nil, only(reelections), nil
	c.slot, c.other = slot, other
	return c
}

// ofSlot returns the requests that concern a slot, and the others.
func ofSlot[R interface{ concerns(slot string) bool }](all []R, slot string) (own, others []R) {
	for _, r := range all {
		if r.concerns(slot) {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	return own, others
}

// only returns the only request of a list; nil if there is none.
func only[R any](list []R) *R {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// concerns reports whether the request is one of a slot, or of the whole group.
func (r Request) concerns(slot string) bool { return r.Slot == "" || r.Slot == slot }

// Whole returns the requests of the whole group: it is the inverse of [Control.OfSlot].
func (c Control) Whole() Control {
	if c.other == nil {
		return c
	}
	if m := c.Move; m != nil {
		c.Moves = []Move{*m}
		c.Moves[0].Slot = c.slot
	}
	if r := c.Reelect; r != nil {
		c.Reelections = []Request{*r}
		c.Reelections[0].Slot = c.slot
	}
	c.Moves, c.Reelections = merge(c.Moves, c.other.Moves), merge(c.Reelections, c.other.Reelections)
	c.Cordons, c.ClearedStrikes = merge(c.Cordons, c.other.Cordons), merge(c.ClearedStrikes, c.other.ClearedStrikes)
	c.Proposals = merge(c.Proposals, c.other.Proposals)
	c.Move, c.Reelect, c.slot, c.other = nil, nil, "", nil
	return c
}

// merge returns the requests of two lists by their numbers.
func merge[R interface{ number() int64 }](a, b []R) []R {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y R) int { return cmp.Compare(x.number(), y.number()) })
	return all
}

func (r Request) number() int64 { return r.ID }

// ReadControl is [ReadStored] for control: with a slot, it returns the requests that concern the slot.
func (p Paths) ReadControl(data []byte, stat Stat, exists bool) Stored[Control] {
	s := ReadStored[Control](p.Control(), data, stat, exists)
	s.Record = s.Record.OfSlot(p.Slot)
	return s
}
