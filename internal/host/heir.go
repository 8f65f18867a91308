package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"zkelectd/internal/command"
	"zkelectd/internal/hook"
	"zkelectd/internal/status"
	"zkelectd/internal/workenv"
)

// heirWatch runs hooks.on_heir and child.prepare on the member that is elected next if the leader is lost. Neither is leader-only work,
// so no lease covers them, and no election waits for them. It is safe for concurrent use.
type heirWatch struct {
	group *Group
	hooks *hook.Queue

	mu      sync.Mutex
	heir    bool          // as last seen
	view    status.Daemon // the last one
	running *preparation  // nil unless child.prepare is to run
	last    *preparation  // the one that was started last
	failure string        // why the last one failed
	closed  bool
}

// prepareEnd is how long the start of the work waits for the processes of child.prepare, which have been killed. Only a process that
// hangs in the kernel takes longer.
const prepareEnd = 50 * time.Millisecond

func newHeirWatch(g *Group) *heirWatch { return &heirWatch{group: g} }

// open starts the hook; close ends it. The hook runs again if this host is the heir.
func (w *heirWatch) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hooks, w.closed, w.heir = hook.NewQueue(w.hook, w.group.log), false, false
}

func (w *heirWatch) hook() hook.Hook {
	return w.group.hook("hooks.on_heir", w.group.workConfig().Hooks.OnHeir)
}

// observe looks at a view of the group. The loop calls it, so it does not block.
func (w *heirWatch) observe(v status.Daemon) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.hooks == nil {
		return
	}
	changed := v.IsHeir != w.heir
	w.heir, w.view = v.IsHeir, v
	if changed {
		w.hooks.Push(w.input(v))
	}
	elected := v.Session && v.Elected == v.Node // the work is about to start
	switch {
	case changed && v.IsHeir:
		w.prepare(w.input(v))
	case w.running != nil && !v.IsHeir && !(w.running.Keep && elected):
		w.kill()
	}
}

// beforeWork kills child.prepare before the leader-only work starts. The loop calls it.
func (w *heirWatch) beforeWork() {
	w.mu.Lock()
	w.kill()
	last := w.last
	w.mu.Unlock()
	if last == nil {
		return
	}
	limit := time.NewTimer(prepareEnd)
	defer limit.Stop()
	select {
	case <-last.done:
	case <-limit.C:
		w.group.log.Warn("child.prepare was killed, but has not ended; the work starts")
	}
}

// prepare starts child.prepare, once the run before is dead. The caller holds the lock.
func (w *heirWatch) prepare(input hook.Input) {
	p := w.group.workConfig().Child.Prepare
	if len(p.Command) == 0 || w.running != nil {
		return
	}
	child := w.group.startedConfig().Child
	run := command.Command{Argv: p.Command, Dir: child.Dir, Env: append(workenv.Extend(os.Environ(), child.Env), input.Env...), Input: input.Data}
	began := func() { w.group.log.Info("child.prepare started: this host is the heir", "command", p.Command[0]) }
	w.running = startPreparation(p, run, w.last, began, w.ended)
	w.last = w.running
}

// reconsider applies a reload: it ends a child.prepare that has changed, and starts the new one if this host is the heir. It also starts
// one again that has failed.
func (w *heirWatch) reconsider() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.hooks == nil {
		return
	}
	p := w.group.workConfig().Child.Prepare
	same := w.running != nil && slices.Equal(w.running.Command, p.Command) && w.running.Keep == p.Keep
	if w.failure == "" && (same || w.running == nil && !w.heir) {
		return
	}
	w.failure = ""
	w.group.resource.heirResults.Add(1) // the reload publishes the record
	w.kill()
	if w.heir {
		w.prepare(w.input(w.view))
	}
}

// ended records how child.prepare has ended.
func (w *heirWatch) ended(p *preparation, killed bool, err error) {
	name, failure := p.Command[0], ""
	switch {
	case killed:
		w.group.log.Info("child.prepare was killed: it has changed, this host is no longer the heir, or its work starts", "command", name)
		return
	case err != nil:
		failure = fmt.Sprintf("child.prepare %s failed, so a takeover may take longer; it runs again after 'zkelectd reload' there, or when this host becomes the heir again: %v",
			name, err)
		w.group.counters.Update(func(t *status.Totals) { t.HookFailures++ })
		w.group.log.Error("child.prepare failed", "err", err)
	}
	w.mu.Lock()
	changed := w.last == p && w.failure != failure
	if changed {
		w.failure = failure
	}
	w.mu.Unlock()
	if changed {
		w.group.resource.heirProblem()
	}
}

// kill kills child.prepare. The caller holds the lock.
func (w *heirWatch) kill() {
	if w.running != nil {
		w.running.cancel()
		w.running = nil
	}
}

// problem returns why the last child.prepare failed, nil if it did not.
func (w *heirWatch) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == "" {
		return nil
	}
	return errors.New(w.failure)
}

// close kills child.prepare, and lets the hook end until ctx does.
func (w *heirWatch) close(ctx context.Context) {
	w.mu.Lock()
	w.kill()
	w.closed = true
	last := w.last
	w.mu.Unlock()
	w.hooks.Close(ctx)
	if last == nil {
		return
	}
	select {
	case <-last.gone:
	case <-ctx.Done():
	}
}

// input returns what hooks.on_heir and child.prepare get.
func (w *heirWatch) input(v status.Daemon) hook.Input {
	g := w.group
	change := status.HeirChange{
		Node: v.Node, Site: v.Site, Group: g.name, Root: g.paths.Root, Heir: v.IsHeir, Leader: v.Elected, Term: v.ElectedTerm, Time: time.Now(),
	}
	data, err := json.Marshal(change)
	if err != nil {
		data = nil // not reached: plain values
	}
	f := workenv.Fencing{
		Node: v.Node, Site: v.Site, Group: g.resource.name, Root: g.paths.Root, Slot: g.paths.Slot, Slots: strconv.FormatInt(g.size.Load(), 10),
		Term: strconv.FormatInt(v.ElectedTerm, 10),
	}
	return hook.Input{Data: append(data, '\n'), Env: f.HeirVariables(v.Elected, v.ElectedSite, v.IsHeir)}
}

// heirProblem publishes that child.prepare of a leadership has failed, or has succeeded since.
func (r *resource) heirProblem() {
	r.heirResults.Add(1)
	if m := r.host.memberOf(r); m != nil {
		if i := m.instance(); i != nil {
			i.Apply(r.settings(), false) // if it ends, the next one registers with them
		}
	}
}

// unprepared returns why the last child.prepare of the leaderships have failed, as the node's record contains it.
func (r *resource) unprepared() []string {
	var all []error
	for _, g := range r.all() {
		all = append(all, g.heirs.problem())
	}
	return problemTexts(all)
}
