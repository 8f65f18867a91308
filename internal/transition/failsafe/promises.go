package failsafe

import (
	"sync"
	"time"

	"zkelectd/internal/cluster"
)

// Options configure [Promises].
type Options struct {
	// State is what was stored last.
	State State
	// Start is when the daemon started, on its CLOCK_BOOTTIME. What an earlier one has promised may bind it from then on.
	Start time.Duration
}

// Promises are what one daemon has promised to leaders, in all of its groups. There is one for each process, whatever
// becomes of its sessions. It is safe for concurrent use. All times are on CLOCK_BOOTTIME.
type Promises struct {
	opt Options

	mu      sync.Mutex
	state   State
	groups  map[string]*promise
	contact contact
}

// promise is what was promised in one group.
type promise struct {
	member string        // the incarnation that is registered; empty if there is none
	bound  time.Duration // until then nobody may be allowed to take over
	gone   int64         // the highest term whose current was seen to be gone
}

// NewPromises returns what a daemon knows when it starts.
func NewPromises(opt Options) *Promises {
	return &Promises{opt: opt, state: opt.State.clone(), groups: make(map[string]*promise)}
}

// group returns the promise of a group. A daemon that has just started is bound by what an earlier one may have
// promised.
func (p *Promises) group(name string) *promise {
	g := p.groups[name]
	if g == nil {
		g = &promise{bound: p.opt.Start + time.Duration(p.opt.State.Wait)}
		p.groups[name] = g
	}
	return g
}

// Key returns the key of the state directory.
func (p *Promises) Key() string { return p.opt.State.Key }

// Register notes under which incarnation the daemon is a member of a group; empty for none.
func (p *Promises) Register(group, incarnation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group(group).member = incarnation
}

// WithWait returns the state to store before [Promises.SetBudget], and whether it differs from what was stored.
func (p *Promises) WithWait(wait time.Duration) (State, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.state.clone()
	next.Wait = max(next.Wait, cluster.Duration(wait))
	return next, next.Wait != p.state.Wait
}

// SetBudget sets what the daemon may promise, and when ZooKeeper counts as unreachable. What [Promises.WithWait] has
// returned for the budget's lease wait must be stored.
func (p *Promises) SetBudget(b cluster.Budget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Wait = max(p.state.Wait, cluster.Duration(b.LeaseWait))
	p.contact.patience, p.contact.session = Patience(b.Lease), b.Session
}

// Grant answers a request. A promise binds the daemon before the reply is returned.
func (p *Promises) Grant(now time.Duration, r Request) Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply := Reply{Request: r}
	g := p.group(r.Group)
	switch {
	case r.Member == "" || r.Member != g.member:
		reply.Reason = ReasonIncarnation
	case !kept:
		reply.OK = true
	case r.Term <= p.state.Vetoed[r.Group]:
		reply.Reason = ReasonVetoed
	case r.Wait > p.state.Wait:
		reply.Reason = ReasonWait
	case r.Dry:
		reply.OK = true
	case r.Term <= g.gone:
		reply.Reason = ReasonGone
	case !p.contact.lost(now):
		p.contact.wanted = true
		reply.Reason, reply.Retry = p.contact.refusal(now)
	default:
		g.bound = max(g.bound, now+time.Duration(p.state.Wait))
		reply.OK = true
	}
	return reply
}

// Gone notes that current of a term was seen to be gone: whoever leads in it can only be replaced.
func (p *Promises) Gone(group string, term int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(group)
	g.gone = max(g.gone, term)
}

// Veto makes the daemon refuse every later promise for a term and all terms before; [Promises.State] must be stored
// before anything follows from that. While the daemon is bound, it returns when it no longer is instead, and changes
// nothing.
func (p *Promises) Veto(now time.Duration, group string, term int64) (bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.group(group); now < g.bound && kept {
		return g.bound
	}
	if p.state.Vetoed[group] < term {
		p.state = p.state.clone()
		if p.state.Vetoed == nil {
			p.state.Vetoed = make(map[string]int64)
		}
		p.state.Vetoed[group] = term
	}
	return 0
}

// State returns the state as it is to be stored: nothing that was stored later may lack what was stored before.
func (p *Promises) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.clone()
}

// Bound returns until when the daemon is bound in a group.
func (p *Promises) Bound(group string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group(group).bound
}

// Vetoed returns the highest term of a group for which the daemon promises nothing any more.
func (p *Promises) Vetoed(group string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Vetoed[group]
}

// Suspect notes that ZooKeeper may be unreachable, as when the connection is lost.
func (p *Promises) Suspect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contact.wanted = true
}

// Probe reports whether a probe ([cluster.Paths.ProbeTx]) is to be sent now. [Promises.ProbeDone] must follow.
func (p *Promises) Probe(now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contact.probe(now)
}

// ProbeDone notes the outcome of a probe. A refusal is an answer of the quorum, too.
func (p *Promises) ProbeDone(now time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contact.done(now, !cluster.NoAnswer(err))
}

// Wake returns when [Promises.Probe] must be called again; 0 if nothing is wanted.
func (p *Promises) Wake() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contact.wake()
}

// Outage reports whether the quorum cannot be reached, as far as the daemon has found out.
func (p *Promises) Outage(now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contact.outage(now)
}
