package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/transition/failsafe"
)

// gatherTime is how long a request waits for those of other groups, so that all go to a daemon at once. maxAsking bounds the requests to
// one daemon at the same time: one without an answer must not delay the next round.
const (
	gatherTime = 2 * time.Millisecond
	maxAsking  = 3
)

// Send asks members for promises in a round of the group with these paths. done gets a reply to each message, in another goroutine: that of
// the member, or [failsafe.ReasonUnreachable] if it cannot be asked or does not reply within limit. Once the agent is closed, there are
// no replies any more.
func (a *Agent) Send(p cluster.Paths, messages []failsafe.Message, limit time.Duration, done func(failsafe.Reply)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	g := a.groups[p.Root]
	for _, m := range messages {
		o := outgoing{root: p.Root, request: m.Request, limit: limit, done: done}
		err := a.prepare(g, m, &o)
		if err != nil {
			a.running.Go(func() { a.failed(m.To.ID, o, err) })
			continue
		}
		a.sender(destination{m.To.ID, m.Address}).add(o)
	}
}

// prepare completes a message to a member of a group. The error says why it cannot be sent.
func (a *Agent) prepare(g *Group, m failsafe.Message, o *outgoing) error {
	switch {
	case g == nil:
		return errors.New("this host does not know the group any more")
	case len(g.Secrets) == 0:
		return errors.Join(errors.New("this host has not read the key of the group"), g.SecretsErr)
	case m.Address == "":
		return errors.New("its address is not known")
	}
	o.secrets = g.Secrets
	return nil
}

// failed reports that a member was not asked, or has not answered.
func (a *Agent) failed(node string, o outgoing, err error) {
	a.noteResult(o.root, node, err)
	o.done(failsafe.Reply{Request: o.request, Reason: failsafe.ReasonUnreachable})
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

// outgoing is a request for a promise that is to be sent.
type outgoing struct {
	root    string
	secrets [][]byte
	request failsafe.Request
	limit   time.Duration
	done    func(failsafe.Reply)
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
		s = &sender{agent: a, to: to, wake: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking), ended: make(chan struct{}), gone: make(chan struct{}), pending: make(map[string]outgoing)}
		a.senders[to] = s
		a.running.Go(s.run)
	}
	return s
}

// endSenders ends the senders for daemons that are at none of the addresses of any group's members. A leader may still have to ask one
// that has left: that begins another sender. The caller holds a.mu.
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) take() []outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]outgoing, 0, len(s.pending))
	for _, o := range s.pending {
		all = append(all, o)
	}
	clear(s.pending)
	return all
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
		all := s.take()
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
	messages := make([]peer.Message, len(all))
	for i, o := range all {
		limit = max(limit, o.limit)
		messages[i] = message(o.root, o.secrets, o.request)
	}
	ctx, cancel := context.WithTimeout(s.agent.ctx, limit)
	defer cancel()
	answers, err := s.agent.client.Ask(ctx, peer.Round, s.to.node, s.to.address, messages)
	if s.agent.ctx.Err() != nil {
		return
	}
	for i, o := range all {
		var answer peer.Answer
		if err == nil {
			answer = answers[i]
		}
		s.agent.running.Go(func() { s.deliver(o, answer, err) }) // the loop of one group may be stuck, and those of the others wait
	}
}

// deliver passes the reply to a request on; err is why there is no answer to any.
func (s *sender) deliver(o outgoing, answer peer.Answer, err error) {
	var reply failsafe.Reply
	if err == nil {
		reply, err = readReply(answer, o.request)
	}
	if err != nil {
		s.agent.failed(s.to.node, o, err)
		return
	}
	s.agent.noteResult(o.root, s.to.node, nil)
	o.done(reply)
}

func message(root string, secrets [][]byte, r failsafe.Request) peer.Message {
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("agent: a request is plain: %v", err))
	}
	return peer.Message{Group: root, Body: body, Secrets: secrets}
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
