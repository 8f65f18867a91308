package request

import (
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/whatif"
)

// ClearStrikes plans to clear the strikes of a node, or of all nodes if node is empty.
func ClearStrikes(q whatif.Question, o Options, node string) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	rec := q.Snapshot.Elected.Record
	for _, x := range rec.Exclusions {
		if node == "" || x.Node == node {
			d.addMessage("cleared: strike %d of %s: %s", x.Strikes, x.Node, x.Reason)
		}
	}
	if len(d.plan.Messages) == 0 {
		if node == "" {
			return Plan{}, errors.New("no node has strikes")
		}
		return Plan{}, fmt.Errorf("%s has no strikes", node)
	}
	if d.next.Full() {
		return Plan{}, errors.New("there are too many requests: end some with 'zkelectd uncordon' first")
	}
	d.next.ClearedStrikes = append(d.next.ClearedStrikes, cluster.ClearedStrikes{Request: d.newRequest(), Node: node, Term: rec.Term})
	if node == "" {
		return d.finish("clear-strikes of all")
	}
	return d.finish("clear-strikes of " + node)
}
