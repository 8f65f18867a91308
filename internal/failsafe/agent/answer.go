package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/transition/failsafe"
)

// secrets returns the keys of a group.
func (a *Agent) secrets(root string) [][]byte {
	if g := a.group(root); g != nil {
		return g.Secrets
	}
	return nil
}

// answer answers an authenticated request for a promise. The rest is for the promises to judge.
func (a *Agent) answer(kind peer.Kind, from, root string, body []byte) ([]byte, error) {
	var r failsafe.Request
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("not a request: %w", err)
	}
	holder, err := cluster.ParseIncarnation(r.Holder)
	switch {
	case r.Dry != (kind == peer.Probe):
		return nil, errors.New("a dry run is no round")
	case err != nil || holder.ID != from:
		return nil, fmt.Errorf("%q is not an incarnation of %s", r.Holder, from)
	case r.Group != failsafe.Group(cluster.Paths{Root: root}): // a group with slots has no failsafe mode
		return nil, fmt.Errorf("%q is not the fence of %s", r.Group, root)
	}
	if err := a.checkState(); err != nil {
		return nil, err
	}
	reply := a.promises.Grant(a.opt.Clock(), r)
	if !reply.OK {
		wake(a.poke) // to know it by the next round
	}
	if reply.OK && !r.Dry {
		a.logPromise(root, from, r.Term)
	}
	return json.Marshal(reply)
}

// checkState returns an error, and logs it, if the next process may not be bound by a promise of this one: because the
// agent is closed, or another process may use the state directory. A leader counts a promise from before it asked, and
// the next process is bound from its start, so it is enough that this is checked once the question is there.
func (a *Agent) checkState() error {
	err := a.dir.CheckLocked()
	a.mu.Lock()
	before := a.unlocked
	a.unlocked = err != nil
	a.mu.Unlock()
	if err != nil && !before && a.ctx.Err() == nil {
		a.opt.Log.Error("this host promises nothing in failsafe mode any more", "err", err)
	}
	return err
}

// logPromise logs the first promise of an outage.
func (a *Agent) logPromise(root, leader string, term int64) {
	now := a.opt.Clock()
	a.mu.Lock()
	last, known := a.granted[root]
	a.granted[root] = now
	first := !known || now > last+a.budget.Session
	a.mu.Unlock()
	if first {
		a.opt.Log.Info("ZooKeeper does not answer: this host has promised the leader to let nobody take over", "root",
			root, "leader", leader, "term", term)
	}
}
