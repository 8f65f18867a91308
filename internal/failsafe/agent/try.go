package agent

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/transition/failsafe"
)

// The members are tried every tryInterval, and tryDelay after they have changed. Each has tryTimeout to answer.
const (
	tryInterval = 15 * time.Second
	tryDelay    = time.Second
	tryTimeout  = 2 * time.Second
)

// dryTerm is the term of a dry run, which is about no term.
const dryTerm = 1 << 62

// Readiness returns whether failsafe mode would work in the group with that root if this host led it now, by the last
// dry run.
func (a *Agent) Readiness(root string) status.Failsafe {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[root]
	if g == nil || !g.Enabled {
		return status.Failsafe{}
	}
	r := status.Failsafe{Enabled: true, Unready: a.results[root], TakesPart: g.Self != "" && len(g.Secrets) > 0}
	switch {
	case g.SecretsErr != nil:
		r.Problem = g.SecretsErr.Error()
	case g.Exposed != "":
		r.Problem = g.Exposed
	case g.Self == "":
		r.Problem = "this host is not a member of the group"
	case len(g.Peers) == 0:
		r.Problem = "there is no other member that could promise"
	case a.results[root] == nil:
		r.Problem = "the other members have not been asked yet"
	}
	r.Ready = r.Problem == "" && len(r.Unready) == 0
	return r
}

// runTries tries the members until the agent is closed.
func (a *Agent) runTries() {
	timer := time.NewTimer(tryDelay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			a.tryAll()
			timer.Reset(tryInterval*9/10 + rand.N(tryInterval/5))
		case <-a.try:
			timer.Reset(tryDelay)
		case <-a.ctx.Done():
			return
		}
	}
}

// tryAll asks all members what they would answer. All groups go to a daemon in one request.
func (a *Agent) tryAll() {
	results := make(map[string]map[string]string)
	trials := make(map[destination][]question)
	a.mu.Lock()
	wait, groups := cluster.Duration(a.budget.LeaseWait), maps.Clone(a.groups)
	a.mu.Unlock()
	for root, g := range groups {
		if !g.Enabled || g.Self == "" || len(g.Secrets) == 0 {
			continue
		}
		results[root] = make(map[string]string)
		for _, p := range g.Peers {
			to, known := g.destination(p.ID)
			if !known {
				results[root][p.ID] = "it takes no part: its log, or 'zkelectd doctor' there, says why"
				continue
			}
			r := failsafe.Request{Group: failsafe.Group(g.Paths), Term: dryTerm, Holder: g.Self, Member: p.Incarnation,
				Wait: wait, Dry: true}
			trials[to] = append(trials[to], question{root, g.Secrets, r})
		}
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for to, all := range trials {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(a.ctx, tryTimeout)
			defer cancel()
			got := a.ask(ctx, peer.Probe, to, all)
			mu.Lock()
			defer mu.Unlock()
			for i, g := range got {
				switch {
				case g.err != nil:
					results[all[i].root][to.node] = g.err.Error()
				case !g.reply.OK:
					results[all[i].root][to.node] = g.reply.Reason.Text()
				}
			}
		})
	}
	asking.Wait()
	if a.ctx.Err() == nil {
		a.setResults(results)
	}
}

// setResults keeps the results of a dry run, and logs what has changed.
func (a *Agent) setResults(results map[string]map[string]string) {
	a.mu.Lock()
	before := a.results
	a.results = results
	a.mu.Unlock()
	for root, now := range results {
		old := before[root]
		for node, reason := range now {
			if old[node] != reason {
				a.opt.Log.Warn("a member would not promise in failsafe mode: in an outage of ZooKeeper the "+
					"leader would stop", "root", root, "member", node, "reason", reason)
			}
		}
		for node := range old {
			if _, still := now[node]; !still {
				a.opt.Log.Info("a member would promise in failsafe mode again, or has left", "root", root, "member", node)
			}
		}
	}
}
