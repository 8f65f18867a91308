package elector

import (
	"fmt"

	"zkelectd/internal/cluster"
)

// checkOthers returns an error unless the decisions of all other slots are known: else a node could be elected for too
// many.
func checkOthers(in Input) error {
	s := &in.Snapshot
	if s.Slot == "" {
		return nil
	}
	known := map[string]bool{s.Slot: true}
	for _, o := range in.Others {
		if err := o.Elected.Newer(); err != nil {
			return err
		}
		if i := cluster.SlotNumber(o.Slot); i >= 0 && i < s.Slots.Record.Count {
			known[o.Slot] = true
		}
	}
	if missing := s.Slots.Record.Count - len(known); missing > 0 {
		return fmt.Errorf("%d of %d slots have not been read yet", missing, s.Slots.Record.Count)
	}
	return nil
}

// held returns for how many other slots each node is elected, by id. A slot whose attempt has ended does not count: its
// work is dead, or its host does not start more until it is.
func held(in Input) map[string]int {
	nodes := make(map[string]int)
	for _, o := range in.Others {
		rec := o.Elected.Record
		if _, exists := in.Snapshot.Member(rec.Incarnation); exists && !o.Ended() {
			nodes[rec.Node]++
		}
	}
	return nodes
}
