package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/transition/failsafe"
)

// gatherTime is how long a request waits for those of other groups, so that all go to a daemon at once. maxAsking
// bounds the requests to one daemon at the same time: one without an answer must not delay the next round.
const (
	gatherTime = 2 * time.Millisecond
	maxAsking  = 3
)

// Send asks members for promises in a round of the group with these paths. done gets a reply to each message, in
// another goroutine: that of the member, or [failsafe.ReasonUnreachable] if it cannot be asked or does not reply within
// limit. Once the agent is closed, there are no replies any more.
func (a *Agent) Send(p cluster.Paths, messages []failsafe.Message, limit time.Duration, done func(failsafe.Reply)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	g := a.groups[p.Root]
	for _, m := range messages {
		o := outgoing{question: question{root: p.Root, request: m.Request}, limit: limit, done: done}
		var err error
		switch {
		case g == nil:
			err = errors.New("this host does not know the group any more")
		case len(g.Secrets) == 0:
			err = errors.Join(errors.New("this host has not read the key of the group"), g.SecretsErr)
		case m.Address == "":
			err = errors.New("its address is not known")
		}
		if err != nil {
			a.running.Go(func() { a.deliver(m.To.ID, o, answer{err: err}) })
			continue
		}
		o.secrets = g.Secrets
		a.sender(destination{m.To.ID, m.Address}).add(o)
	}
}

// deliver passes the answer of a member on.
func (a *Agent) deliver(node string, o outgoing, got answer) {
	a.noteResult(o.root, node, got.err)
	if got.err != nil {
		got.reply = failsafe.Reply{Request: o.request, Reason: failsafe.ReasonUnreachable}
	}
	o.done(got.reply)
}

// noteResult logs that a member does not answer in an outage, or answers again, whenever that changes.
func (a *Agent) noteResult(root, node string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	key := asked{root, node}
	a.mu.Lock()
	before := a.asked[key]
	a.asked[key] = text
	a.mu.Unlock()
	switch log := a.opt.Log.With("root", root, "member", node); {
	case text == before:
	case text != "":
		log.Warn("a member does not promise in failsafe mode: unless it does in time, the leader stops", "err", text)
	default:
		log.Info("a member answers in failsafe mode again")
	}
}

// asked is a member that was asked in a round.
type asked struct{ root, node string }

// destination is where a daemon can be asked.
type destination struct{ node, address string }

// destination returns where a node can be asked in a dry run, as last known.
func (g *Group) destination(id string) (destination, bool) {
	for _, p := range g.Peers {
		if p.ID == id && p.Failsafe != nil && p.Failsafe.Address != "" {
			return destination{id, p.Failsafe.Address}, true
		}
	}
	return destination{}, false
}

// question is a request for a promise.
type question struct {
	root    string
	secrets [][]byte
	request failsafe.Request
}

// answer is the reply to a question, or why there is none.
type answer struct {
	reply failsafe.Reply
	err   error
}

// ask sends questions to a daemon, and returns the answer to each.
func (a *Agent) ask(ctx context.Context, kind peer.Kind, to destination, all []question) []answer {
	messages := make([]peer.Message, len(all))
	for i, q := range all {
		messages[i] = peer.Message{Group: q.root, Body: q.body(), Secrets: q.secrets}
	}
	replies, err := a.client.Ask(ctx, kind, to.node, to.address, messages)
	got := make([]answer, len(all))
	for i, q := range all {
		if got[i].err = err; err == nil {
			got[i].reply, got[i].err = readReply(replies[i], q.request)
		}
	}
	return got
}

func (q question) body() []byte {
	body, err := json.Marshal(q.request)
	if err != nil {
		panic(fmt.Sprintf("agent: a request is plain: %v", err))
	}
	return body
}

// outgoing is a question of a round that is to be sent.
type outgoing struct {
	question
	limit time.Duration
	done  func(failsafe.Reply)
}

// sender sends the requests for one daemon.
type sender struct {
	agent  *Agent
	to     destination
	wake   chan struct{}
	asking chan struct{} // one element for each request under way
	ended  chan struct{} // closed when nothing is added any more
	gone   chan struct{} // closed when it has ended

	mu      sync.Mutex
	pending map[string]outgoing // by the fence; the newest replaces older ones
}

// sender returns the sender for a daemon. The caller holds a.mu.
func (a *Agent) sender(to destination) *sender {
	s := a.senders[to]
	if s == nil {
		s = &sender{agent: a, to: to, wake: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking),
			ended: make(chan struct{}), gone: make(chan struct{}), pending: make(map[string]outgoing)}
		a.senders[to] = s
		a.running.Go(s.run)
	}
	return s
}

// endSenders ends the senders for daemons that are at none of the addresses of any group's members. A leader may still
// have to ask one that has left: that begins another sender. The caller holds a.mu.
func (a *Agent) endSenders() {
	if len(a.senders) == 0 {
		return
	}
	wanted := make(map[destination]bool)
	for _, g := range a.groups {
		for _, p := range g.Peers {
			if to, known := g.destination(p.ID); known {
				wanted[to] = true
			}
		}
	}
	for to, s := range a.senders {
		if !wanted[to] {
			delete(a.senders, to)
			close(s.ended)
		}
	}
}

func (s *sender) add(o outgoing) {
	s.mu.Lock()
	s.pending[o.request.Group] = o
	s.mu.Unlock()
	wake(s.wake)
}

func (s *sender) run() {
	defer close(s.gone)
	gather := time.NewTimer(gatherTime)
	defer gather.Stop()
	ctx := s.agent.ctx
	for last := false; !last; {
		select {
		case <-s.wake:
		case <-s.ended: // what was added before is still sent
			last = true
		case <-ctx.Done():
			return
		}
		gather.Reset(gatherTime)
		select {
		case <-gather.C:
		case <-ctx.Done():
			return
		}
		select {
		case s.asking <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.pending))
		clear(s.pending)
		s.mu.Unlock()
		s.agent.running.Go(func() {
			defer func() { <-s.asking }()
			s.ask(all)
		})
	}
}

// ask sends requests, and passes the replies on.
func (s *sender) ask(all []outgoing) {
	if len(all) == 0 {
		return
	}
	limit := all[0].limit
	questions := make([]question, len(all))
	for i, o := range all {
		limit, questions[i] = max(limit, o.limit), o.question
	}
	ctx, cancel := context.WithTimeout(s.agent.ctx, limit)
	defer cancel()
	got := s.agent.ask(ctx, peer.Round, s.to, questions)
	if s.agent.ctx.Err() != nil {
		return
	}
	for i, o := range all {
		// the loop of one group may be stuck, and those of the others wait
		s.agent.running.Go(func() { s.agent.deliver(s.to.node, o, got[i]) })
	}
}

// readReply decodes an authenticated answer to a request.
func readReply(a peer.Answer, asked failsafe.Request) (failsafe.Reply, error) {
	var reply failsafe.Reply
	if a.Err != nil {
		return reply, a.Err
	}
	if err := json.Unmarshal(a.Body, &reply); err != nil {
		return reply, fmt.Errorf("not a reply: %w", err)
	}
	if reply.Request != asked {
		return reply, fmt.Errorf("a reply to another request")
	}
	return reply, nil
}
