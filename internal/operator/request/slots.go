package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

// checkScope returns an error if the request is for one leader and none is named, or for a whole group and a slot is named.
func (r Request) checkScope(q whatif.Question) error {
	switch {
	case r.Kind.OfSlot() && q.Slots != nil:
		return fmt.Errorf("the group has several leaders: a %s needs a slot, 0 to %d", r.Kind, len(q.Slots)-1)
	case !r.Kind.OfSlot() && q.Snapshot.Slot != "":
		return fmt.Errorf("a %s is for the whole group, not for slot %s: name the group without a slot", r.Kind, q.Snapshot.Slot)
	}
	return nil
}

// slotsLed returns the slots whose leaders a cordon covers.
func (d *draft) slotsLed(c cluster.Cordon) (slots []string) {
	for i := range d.q.Slots {
		s := &d.q.Slots[i].Snapshot
		if node, site := leaderOf(s); c.Matches(node, site) {
			slots = append(slots, s.Slot)
		}
	}
	return slots
}

// slotNames returns slots in words.
func slotNames(slots []string) string {
	if len(slots) == 1 {
		return "slot " + slots[0]
	}
	return "slots " + strings.Join(slots, ", ")
}

// WithControl returns the question as it would be with another record of requests, for each of the slots.
func WithControl(q whatif.Question, c cluster.Control) whatif.Question {
	q.Snapshot.Control.Exists, q.Snapshot.Control.Record = true, c.Clone()
	slots := slices.Clone(q.Slots)
	for i := range slots {
		s := &slots[i].Snapshot
		s.Control.Exists, s.Control.Record = true, c.Whole().OfSlot(s.Slot).Clone()
	}
	q.Slots = slots
	return q
}

// finishSlotDrain refuses a drain if no other member can take over a slot, unless it is forced.
func (d *draft) finishSlotDrain(c cluster.Cordon) (Plan, error) {
	effect := fmt.Sprintf("%s will not be elected%s", c.Target(), d.duration())
	led := d.slotsLed(c)
	if len(led) == 0 {
		d.addMessage("%s; it leads no slot", effect)
		return d.finish("drain of " + c.Target())
	}
	d.addMessage("%s; it leads %s", effect, slotNames(led))
	var stuck []string
	q := WithControl(d.q, d.next)
	for i, out := range whatif.RunSlots(q.Slots) {
		s := &d.q.Slots[i].Snapshot
		node, site := leaderOf(s)
		switch then := out.Leader; {
		case !c.Matches(node, site):
		case out.HasLeader() && !c.Matches(then.ID, then.Node.Record.Site):
			d.addMessage("slot %s moves from %s (%s) to %s (%s)", s.Slot, node, site, then.ID, then.Node.Record.Site)
		default:
			stuck = append(stuck, fmt.Sprintf("slot %s: %s", s.Slot, d.othersRefused(out, c.Matches)))
			d.addMessage("slot %s stays with %s until another member can lead it", s.Slot, node)
		}
	}
	if len(stuck) > 0 && !d.options.Force {
		return Plan{}, errors.New("no other member is eligible: " + strings.Join(stuck, "; ") + "; --force drains it as soon as another one is")
	}
	return d.finish("drain of " + c.Target())
}
