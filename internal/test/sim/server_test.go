package sim

import (
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// apply applies a transaction at the server and checks the promises.
func (w *world) apply(s *session, ops []cluster.Op) ([]cluster.Result, error) {
	before := w.fencesBefore(ops)
	results, fired, err := w.tree.Apply(s.id, ops)
	if err == nil {
		w.checkSuccession(before)
	}
	if w.trace != nil {
		w.log("%s: %s -> %v", s.h.id, describe(ops), err)
	}
	if err == nil && slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind != cluster.OpCheck }) {
		if own := withoutLease(ops); len(own) > 0 {
			for _, g := range w.resourceOf(own[0].Path).groups {
				g.check.applied(s, own, results)
			}
		}
	}
	w.fire(fired)
	return results, err
}

// close ends a session at the server.
func (w *world) close(s *session) {
	if w.tree.Alive(s.id) {
		fired := w.tree.End(s.id)
		w.closed = w.now
		for _, g := range w.groups {
			g.check.changed()
		}
		w.fire(fired)
	}
}

func (w *world) fire(fired []storetest.Fired) {
	for _, f := range fired {
		if s := w.sessions[f.Session]; s != nil {
			s.fired(f.Path)
		}
	}
}

// describe describes a transaction by what it writes.
func describe(ops []cluster.Op) string {
	text := ""
	for _, op := range ops {
		if op.Kind == cluster.OpCheck {
			continue
		}
		text += fmt.Sprintf("%s %s@%d %s; ", op.Kind, op.Path, op.Version, brief(op.Data))
	}
	if text == "" {
		return "RENEW"
	}
	return text
}

func brief(data []byte) string {
	const most = 160
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}
