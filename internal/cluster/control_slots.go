package cluster

import (
	"cmp"
	"slices"
)

// otherSlots are the requests that do not concern a slot.
type otherSlots struct {
	slot           string
	moves          []Move
	reelections    []Request
	cordons        []Cordon
	clearedStrikes []ClearedStrikes
	proposals      []Proposal
}

// OfSlot returns the requests that concern a slot: its own and those of the whole group. Move and Reelect are those of the slot.
// The result keeps the requests of the other slots for [Control.Whole]. The requests of a group with one leader, whose slot is "",
// stay as they are. c may already be the result for any slot.
func (c Control) OfSlot(slot string) Control {
	c = c.Whole()
	if slot == "" {
		return c
	}
	other := &otherSlots{slot: slot}
	c.Move, c.Reelect = nil, nil
	for _, m := range c.Moves {
		if m.Slot == slot {
			c.Move = &m
		} else {
			other.moves = append(other.moves, m)
		}
	}
	for _, r := range c.Reelections {
		if r.Slot == slot {
			c.Reelect = &r
		} else {
			other.reelections = append(other.reelections, r)
		}
	}
	c.Cordons, other.cordons = ofSlot(c.Cordons, slot)
	c.ClearedStrikes, other.clearedStrikes = ofSlot(c.ClearedStrikes, slot)
	c.Proposals, other.proposals = ofSlot(c.Proposals, slot)
	c.Moves, c.Reelections, c.other = nil, nil, other
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

// concerns reports whether the request is one of a slot, or of the whole group.
func (r Request) concerns(slot string) bool { return r.Slot == "" || r.Slot == slot }

// Whole returns the requests of the whole group: it is the inverse of [Control.OfSlot].
func (c Control) Whole() Control {
	if c.other == nil {
		return c
	}
	other := c.other
	c.Moves, c.Reelections = slices.Clone(other.moves), slices.Clone(other.reelections)
	if c.Move != nil {
		m := *c.Move
		m.Slot = other.slot
		c.Moves = append(c.Moves, m)
	}
	if c.Reelect != nil {
		r := *c.Reelect
		r.Slot = other.slot
		c.Reelections = append(c.Reelections, r)
	}
	c.Cordons, c.ClearedStrikes = slices.Concat(other.cordons, c.Cordons), slices.Concat(other.clearedStrikes, c.ClearedStrikes)
	c.Proposals = slices.Concat(other.proposals, c.Proposals)
	slices.SortStableFunc(c.Moves, func(a, b Move) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(c.Reelections, func(a, b Request) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(c.Cordons, func(a, b Cordon) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(c.ClearedStrikes, func(a, b ClearedStrikes) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(c.Proposals, func(a, b Proposal) int { return cmp.Compare(a.ID, b.ID) })
	c.Move, c.Reelect, c.other = nil, nil, nil
	return c
}

// ReadControl is [ReadStored] for control: with a slot, it returns the requests that concern the slot.
func (p Paths) ReadControl(data []byte, stat Stat, exists bool) Stored[Control] {
	s := ReadStored[Control](p.Control(), data, stat, exists)
	s.Record = s.Record.OfSlot(p.Slot)
	return s
}
