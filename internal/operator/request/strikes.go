package request

import (
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

// ClearStrikes plans to clear the strikes of a node, or of all nodes if node is empty.
func ClearStrikes(q whatif.Question, o Options, node string) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	var cleared []cluster.ClearedStrikes // terms of different slots cannot be compared
	for _, q := range q.Leaders() {
		if d.describeStrikes(q.Snapshot, node) {
			c := cluster.ClearedStrikes{Node: node, Term: q.Snapshot.Elected.Record.Term}
			c.Slot = q.Snapshot.Slot
			cleared = append(cleared, c)
		}
	}
	if len(cleared) == 0 {
		if node == "" {
			return Plan{}, &NotAffectedError{Reason: "no node has strikes", Done: true}
		}
		nodes, _ := members(q.Snapshot)
		return Plan{}, &NotAffectedError{Reason: node + " has no strikes" + didYouMean(node, nodes), Done: true}
	}
	if d.next.Full() {
		return Plan{}, fmt.Errorf("there are too many requests: uncordon some of the nodes and sites that %s lists first", d.inGroup("'zkelectd status'"))
	}
	for _, c := range cleared {
		slot := c.Slot
		c.Request = d.newRequest()
		c.Slot = slot
		d.next.ClearedStrikes = append(d.next.ClearedStrikes, c)
	}
	if node == "" {
		return d.finish("clear-strikes of all")
	}
	return d.finish("clear-strikes of " + node)
}

// describeStrikes describes the strikes that are cleared, and reports whether there are any.
func (d *draft) describeStrikes(s cluster.Snapshot, node string) bool {
	found := false
	for _, x := range s.Elected.Record.Exclusions {
		if node != "" && x.Node != node {
			continue
		}
		found = true
		where := ""
		if s.Slot != "" {
			where = " in slot " + s.Slot
		}
		d.addMessage("cleared: strike %d of %s%s: %s", x.Strikes, x.Node, where, x.Reason)
	}
	return found
}
