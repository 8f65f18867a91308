package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Control is the record of control: the requests of operators (docs/protocol.md, Operators). Commands write it, and
// check its version, and the elector carries them out, so that they work from any host.
type Control struct {
	Header
	// Last is the number of the latest request. LastRequest describes it, for an operator whose own request came later.
	Last        int64  `json:"last"`
	LastRequest string `json:"last_request,omitempty"`

	Pause *Pause `json:"pause,omitempty"`
	Move  *Move  `json:"move,omitempty"`
	// Reelect requests one election by policy alone, without failback, damping or a move.
	Reelect *Request `json:"reelect,omitempty"`
	// Moves and Reelections are those of the slots of a group with several leaders, at most one of each slot. Move and
	// Reelect are nil there, except in what [Control.OfSlot] returns.
	Moves          []Move           `json:"moves,omitempty"`
	Reelections    []Request        `json:"reelections,omitempty"`
	Cordons        []Cordon         `json:"cordons,omitempty"`
	ClearedStrikes []ClearedStrikes `json:"cleared_strikes,omitempty"`
	// Proposals are the elections that wait for a person, at most one of each leadership.
	Proposals []Proposal `json:"proposals,omitempty"`
	// Done holds the requests that have ended recently, the oldest first.
	Done []Done `json:"done,omitempty"`

	slot  string   // of which OfSlot has returned the requests
	other *Control // the requests that do not concern it; nil without one
}

// Request is the part that all requests have in common.
type Request struct {
	// ID is its number, unique in the group.
	ID int64 `json:"id"`
	// Slot is the only slot that it concerns; empty for a request that concerns the whole group.
	Slot string `json:"slot,omitempty"`
	// By is the operator who submitted it, as user@host; Reason is the operator's own text.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	// For is how long it is in force, 0 if it has no end. Remaining is how much of that was left when an elector last
	// wrote it, for the next elector: the clocks of two hosts are never compared.
	For       Duration `json:"for,omitempty"`
	Remaining Duration `json:"remaining,omitempty"`
	// Time is when it was submitted, by the operator's clock; for people.
	Time time.Time `json:"time"`
}

// String returns who submitted the request, and why.
func (r Request) String() string {
	if r.Reason == "" {
		return "by " + r.By
	}
	return fmt.Sprintf("by %s: %s", r.By, r.Reason)
}

// Pause keeps policy from replacing a healthy leader. A hard pause also keeps a dead leader from being replaced.
type Pause struct {
	Request
	Hard bool `json:"hard,omitempty"`
}

// Move ranks a node or a site first. It is in force until it expires, its target is not eligible, or another request
// ends it.
type Move struct {
	Request
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
	// Force exempts the target from the policy's constraints, from cordons and from its health.
	Force bool `json:"force,omitempty"`
}

// Target returns the node or site in words.
func (m Move) Target() string { return target(m.Node, m.Site) }

// Describe says to where it has moved leadership, and who submitted it.
func (m Move) Describe() string {
	return fmt.Sprintf("moved to %s %s", m.Target(), m.Request)
}

// Matches reports whether a member is the target.
func (m Move) Matches(id, site string) bool { return matches(m.Node, m.Site, id, site) }

// Cordon keeps a node or a site from being elected. A leader there stays, unless Drain is set.
type Cordon struct {
	Request
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
	// Drain makes a leader there be replaced.
	Drain bool `json:"drain,omitempty"`
}

// Target returns the node or site in words.
func (c Cordon) Target() string { return target(c.Node, c.Site) }

// Matches reports whether the cordon covers a member.
func (c Cordon) Matches(id, site string) bool { return matches(c.Node, c.Site, id, site) }

// Describe returns a description of the cordon.
func (c Cordon) Describe() string {
	what := "cordoned"
	if c.Drain {
		what = "drained"
	}
	if c.Site != "" {
		what = "site " + c.Site + " is " + what
	}
	return fmt.Sprintf("%s %s", what, c.Request)
}

// matches reports whether a member is the node, or at the site, that is named. An empty name matches no member.
func matches(node, at, id, site string) bool {
	return (node != "" && id == node) || (at != "" && site == at)
}

func target(node, site string) string {
	if node != "" {
		return node
	}
	return "site " + site
}

// Proposal is an election that a person must confirm (docs/policies.md, Approval). The elector writes it, and it is in
// force until it expires, or another decision is made.
type Proposal struct {
	Request
	// Term is that of the decision that the election would replace, Node and Site who would be elected, and Cause why.
	Term  int64  `json:"term"`
	Node  string `json:"node"`
	Site  string `json:"site,omitempty"`
	Cause Cause  `json:"cause"`
	// Answer is what was answered, and AnsweredBy by whom; both are empty while nobody has.
	Answer     ProposalAnswer `json:"answer,omitempty"`
	AnsweredBy string         `json:"answered_by,omitempty"`
}

// ProposalAnswer is the answer to a [Proposal].
type ProposalAnswer string

// The answers.
const (
	ProposalApproved ProposalAnswer = "approved"
	ProposalRejected ProposalAnswer = "rejected"
)

// Target returns whom it would elect.
func (p Proposal) Target() string {
	if p.Site == "" {
		return p.Node
	}
	return p.Node + " (" + p.Site + ")"
}

// Describe says what was proposed, for the list of what has ended.
func (p Proposal) Describe() string { return "proposal to elect " + p.Target() }

// SetAnswer answers it. From then on it does not expire.
func (p *Proposal) SetAnswer(answer ProposalAnswer, by string) {
	p.Answer, p.AnsweredBy, p.For, p.Remaining = answer, by, 0, 0
}

// ClearedStrikes clears the strikes of a node, or of all nodes if Node is empty, that are from before Term.
type ClearedStrikes struct {
	Request
	Node string `json:"node,omitempty"`
	Term int64  `json:"term"`
}

// Covers reports whether c clears the strikes of x.
func (c ClearedStrikes) Covers(x Exclusion) bool {
	return x.Term < c.Term && (c.Node == "" || c.Node == x.Node)
}

// Uncleared returns the exclusions whose strikes operators have not cleared.
func (c Control) Uncleared(all []Exclusion) []Exclusion {
	return slices.DeleteFunc(slices.Clone(all), func(x Exclusion) bool {
		return slices.ContainsFunc(c.ClearedStrikes, func(cleared ClearedStrikes) bool { return cleared.Covers(x) })
	})
}

// Done is a request that has ended, and its outcome.
type Done struct {
	ID      int64     `json:"id"`
	What    string    `json:"what"`
	Outcome string    `json:"outcome"`
	Time    time.Time `json:"time"`
}

// maxDone and maxRequests keep the record far below 1 MB, even with long reasons.
const (
	maxDone     = 20
	maxRequests = 500
)

// End records the outcome of a request.
func (c *Control) End(id int64, what, outcome string, wall time.Time) {
	c.Done = append(slices.Clone(c.Done), Done{id, what, outcome, wall})
	c.Done = c.Done[max(0, len(c.Done)-maxDone):]
}

// Ended returns the outcome of a request, if it has ended recently.
func (c Control) Ended(id int64) (Done, bool) {
	i := slices.IndexFunc(c.Done, func(d Done) bool { return d.ID == id })
	if i < 0 {
		return Done{}, false
	}
	return c.Done[i], true
}

// ElectedOutcome ends the outcome of a proposal or reelection that has ended because somebody was elected, StaysOutcome
// that of a reelection for which nobody had to be.
const (
	ElectedOutcome = " was elected"
	StaysOutcome   = " leads and is the best"
)

// MaxRequest is the highest number of a request that is accepted. JSON readers can represent it, and the next one.
const MaxRequest = 1 << 52

// MaxRequestTime bounds the duration of a request or an exclusion: a longer one could overflow when it is added to a
// time.
const MaxRequestTime = 10 * 365 * 24 * time.Hour

func checkRequest(id int64, lasts Duration) error {
	if id < 0 || id > MaxRequest {
		return fmt.Errorf("request number %d is not between 0 and %d", id, int64(MaxRequest))
	}
	if time.Duration(lasts) > MaxRequestTime {
		return fmt.Errorf("request %d lasts %s, above the maximum of %s", id, lasts, MaxRequestTime)
	}
	return nil
}

func (c *Control) validate(Stat) error {
	err := checkRequest(c.Last, 0)
	c.Each(func(r *Request) { err = errors.Join(err, checkRequest(r.ID, max(r.For, r.Remaining))) })
	if c.Reelect != nil {
		err = errors.Join(err, checkRequest(c.Reelect.ID, 0))
	}
	for _, r := range c.Reelections {
		err = errors.Join(err, checkRequest(r.ID, 0))
	}
	return err
}

// Continue makes the numbers continue after last, the request that a decision names, so that none is used twice after
// control was deleted. Only a forged decision names the highest number: then they start again.
func (c *Control) Continue(last int64) {
	if last < MaxRequest {
		c.Last = max(c.Last, last)
	}
}

// Exhausted returns an error if no number is left for another request. Only a forged record can cause that.
func (c *Control) Exhausted() error {
	if c.Last < MaxRequest {
		return nil
	}
	return fmt.Errorf("no request can have a number above %d: not written by zkelectd", c.Last)
}

// Next returns a request with the next number. Its remaining time is For.
func (c *Control) Next(r Request) Request {
	c.Last++
	r.ID, r.Remaining = c.Last, r.For
	return r
}

// Full reports whether there is no room for another cordon or clear-strikes request.
func (c Control) Full() bool { return len(c.Cordons)+len(c.ClearedStrikes) >= maxRequests }

// Each calls f for every request that may end by itself.
func (c *Control) Each(f func(*Request)) {
	if c.Pause != nil {
		f(&c.Pause.Request)
	}
	if c.Move != nil {
		f(&c.Move.Request)
	}
	for i := range c.Moves {
		f(&c.Moves[i].Request)
	}
	for i := range c.Cordons {
		f(&c.Cordons[i].Request)
	}
	for i := range c.Proposals {
		f(&c.Proposals[i].Request)
	}
}

// Clone returns a copy whose requests can be changed.
func (c Control) Clone() Control {
	c.Pause, c.Move, c.Reelect = clone(c.Pause), clone(c.Move), clone(c.Reelect)
	c.Moves, c.Reelections = slices.Clone(c.Moves), slices.Clone(c.Reelections)
	c.Cordons, c.ClearedStrikes = slices.Clone(c.Cordons), slices.Clone(c.ClearedStrikes)
	c.Proposals, c.Done = slices.Clone(c.Proposals), slices.Clone(c.Done)
	return c
}

// clone returns a copy of what p points to.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
