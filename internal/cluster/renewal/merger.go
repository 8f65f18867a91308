// Package renewal merges the RENEWs of the groups that share a ZooKeeper session into few transactions
// (docs/protocol.md, Merged renewals). It is pure: a [Merger] says which batches to send, and sends nothing itself.
package renewal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// Answer is the outcome of the RENEW that a group posted last. Its error matches [cluster.ErrNotSent],
// [cluster.ErrUnknown] or [cluster.ErrSessionEnded] if the outcome is not known; any other error is a refusal of this
// RENEW.
type Answer struct {
	ID int
	transition.RenewDone
}

// Batch is one request to send: a transaction with the requests of one or more groups. Without Ops, the lease znode is
// to be read instead, after a sync, and [Merger.Counted] takes what was read.
type Batch struct {
	Ops  []cluster.Op
	Sent time.Duration
	// Deadline is the latest deadline of the requests in it: a later reply is of no use.
	Deadline time.Duration

	parts    []part
	bytes    int
	renews   bool // otherwise it only finds out who is refused
	advances bool // it advances the lease znode
}

// part is one group's request in a batch.
type part struct {
	id   int
	post uint64
	transition.Renew
}

// MaxBatch bounds the size of a batch in bytes: about 550 groups. A larger request is sent alone.
const MaxBatch = 128 << 10

// variation is by how much an interval between two renewals is shortened at most, as a share of it: hosts whose
// renewals coincide, for instance after the servers' restart, must not stay aligned.
const variation = 0.1

// Merger collects the requests of groups. The ids of two groups, or of two instances of a group, must differ. It must
// be used by one goroutine only.
//
// Every transaction that renews also advances the session's lease znode, at the version that the last one has left. So
// whoever sees the znode unchanged knows that no lease has been renewed since (docs/protocol.md, The renewal is seen).
// Therefore only one renewing transaction is under way at a time: the version for the next one follows from its
// outcome. If that is not known, the znode is read before anything else is renewed. A version that this session has not
// written ends the session, see [Merger.Err]: somebody else writes the znode, and the group could take over from a
// leader that renews.
type Merger struct {
	random  func() float64
	shorten float64 // the share by which the intervals of this round are shortened
	posts   uint64
	latest  map[int]uint64 // the last post of each group that is neither answered nor withdrawn
	waiting map[int]waiting

	queue  []part // due, in the order in which they are sent
	flying int    // batches without an outcome

	znode   string // the lease znode; empty if there is none
	owner   int64  // the session
	version int32  // of the lease znode, as far as that is known
	unknown int32  // transactions without an outcome since then
	err     error
}

type waiting struct {
	part
	due time.Duration // when it is sent at the latest, with variation
}

// NewMerger returns a merger. random returns numbers in [0, 1).
func NewMerger(random func() float64) *Merger {
	return &Merger{
		random: random, shorten: variation * random(), latest: make(map[int]uint64), waiting: make(map[int]waiting),
	}
}

// SetLeaseZnode sets the lease znode of the session, and its version.
func (m *Merger) SetLeaseZnode(znode string, session int64, version int32) {
	m.znode, m.owner, m.version = znode, session, version
}

// Err returns why the session must end; nil if it need not.
func (m *Merger) Err() error { return m.err }

// Post posts a group's RENEW. It is good for one renewal, and replaces the group's last one; if that is under way, its
// result is discarded.
func (m *Merger) Post(now time.Duration, id int, r transition.Renew) {
	m.posts++
	m.latest[id] = m.posts
	early := time.Duration(m.shorten * float64(max(0, r.Due-now)))
	m.waiting[id] = waiting{part{id, m.posts, r}, r.Due - early}
}

// Withdraw withdraws a group's request. If it is under way, its result is discarded.
func (m *Merger) Withdraw(id int) {
	delete(m.latest, id)
	delete(m.waiting, id)
}

// Wake returns when Take must be called; 0 means never.
func (m *Merger) Wake() time.Duration {
	if m.flying > 0 {
		return 0
	}
	var at time.Duration
	for _, w := range m.waiting {
		at = cluster.Earliest(at, max(1, w.due))
	}
	return at
}

// Take returns what to send now: a batch with all waiting requests if one of them is due, else nothing. More batches
// follow if they are too large for one. Requests past their deadline are dropped without an answer.
func (m *Merger) Take(now time.Duration) []Batch {
	if m.flying > 0 || m.Wake() > now {
		return nil
	}
	for _, w := range m.waiting {
		m.queue = append(m.queue, w.part)
	}
	clear(m.waiting)
	m.shorten = variation * m.random()
	// The lease that ends first is renewed first.
	slices.SortFunc(m.queue, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.id, b.id))
	})
	return m.next(now)
}

// Done handles the outcome of a batch, as returned by [cluster.Writer]. It returns the results for the groups, and what
// to send now. If the batch was refused, only the group of the refused operation gets the refusal. Who else would be
// refused is found out by transactions of the others that renew nothing, all at once, so that many refusals at once
// cost three rounds only; then the rest is renewed.
func (m *Merger) Done(now time.Duration, b Batch, err error) (answers []Answer, again []Batch) {
	m.flying--
	if b.renews {
		err = m.count(b, err)
	}
	var culprit *part
	refused := err != nil && !cluster.NoAnswer(err)
	if refused {
		culprit, err = b.culprit(err)
	}
	for i, p := range b.parts {
		switch {
		case m.latest[p.id] != p.post: // replaced or withdrawn
		case refused && culprit != &b.parts[i] && now >= p.Deadline:
			delete(m.latest, p.id)
		case refused && culprit != &b.parts[i]:
			check := Batch{Sent: now}
			check.add(p)
			again = append(again, check)
		case err == nil && !b.renews:
			m.queue = append(m.queue, p)
		default:
			delete(m.latest, p.id)
			answers = append(answers, Answer{p.id, transition.RenewDone{Term: p.Term, Held: p.Held, Sent: b.Sent, Err: err}})
		}
	}
	m.flying += len(again)
	return answers, append(again, m.next(now)...)
}

// count notes what the outcome of a renewing batch says about the version of the lease znode. It returns the outcome
// for the groups: what the servers refuse about that znode, they do not refuse about a group.
func (m *Merger) count(b Batch, err error) error {
	if !b.advances {
		return err
	}
	var refusal *cluster.TxError
	switch {
	case err == nil:
		m.version++
	case errors.Is(err, cluster.ErrUnknown):
		m.unknown++
	case errors.As(err, &refusal) && refusal.Index == len(b.Ops)-1:
		if errors.Is(err, cluster.ErrNoNode) || errors.Is(err, cluster.ErrBadVersion) {
			m.err = fmt.Errorf("somebody else has deleted or changed the lease znode of this session: %w", err)
		}
		return fmt.Errorf("%w: %w", cluster.ErrNotSent, err)
	}
	return err
}

// Counted handles what was read of the lease znode in place of a batch, with the error of that.
func (m *Merger) Counted(now time.Duration, b Batch, stat cluster.Stat, err error) (answers []Answer, again []Batch) {
	m.flying--
	switch {
	case err != nil && !errors.Is(err, cluster.ErrNoNode):
		err = fmt.Errorf("%w: the lease znode could not be read: %w", cluster.ErrNotSent, err)
	case err != nil, stat.Owner != m.owner, stat.Version < m.version, stat.Version > m.version+m.unknown:
		m.err = fmt.Errorf("somebody else has deleted or changed znode %s, the lease znode of this session: its "+
			"version is %d and its owner 0x%x, not %d and 0x%x",
			m.znode, stat.Version, stat.Owner, m.version, m.owner)
		err = fmt.Errorf("%w: %w", cluster.ErrNotSent, m.err)
	default:
		m.version, m.unknown = stat.Version, 0
		return nil, m.next(now)
	}
	for _, p := range m.queue {
		if m.latest[p.id] == p.post {
			delete(m.latest, p.id)
			answers = append(answers, Answer{p.id, transition.RenewDone{Term: p.Term, Held: p.Held, Sent: b.Sent, Err: err}})
		}
	}
	m.queue = nil
	return answers, nil
}

// culprit returns the part that a refusal is about, and the refusal as that part alone would have got it; nil if it
// names none of several.
func (b Batch) culprit(err error) (*part, error) {
	if len(b.parts) == 1 {
		return &b.parts[0], err
	}
	var refusal *cluster.TxError
	if !errors.As(err, &refusal) || refusal.Index < 0 {
		return nil, err
	}
	index := refusal.Index
	for i, p := range b.parts {
		if index < len(p.Ops) {
			return &b.parts[i], &cluster.TxError{Index: index, Op: refusal.Op, Err: refusal.Err}
		}
		index -= len(p.Ops)
	}
	return nil, err
}

// next returns the next batch, of at most [MaxBatch] bytes and at least one request, unless something is under way. It
// drops requests past their deadline.
func (m *Merger) next(now time.Duration) []Batch {
	m.queue = slices.DeleteFunc(m.queue, func(p part) bool {
		if current := m.latest[p.id] == p.post; current && now < p.Deadline {
			return false
		} else if current {
			delete(m.latest, p.id)
		}
		return true
	})
	if m.flying > 0 || len(m.queue) == 0 || m.err != nil {
		return nil
	}
	b := Batch{Sent: now, renews: true}
	m.flying++
	if m.unknown > 0 {
		for _, p := range m.queue {
			b.Deadline = max(b.Deadline, p.Deadline)
		}
		return []Batch{b}
	}
	var advance []cluster.Op
	if m.znode != "" {
		advance = []cluster.Op{{Kind: cluster.OpSet, Path: m.znode, Version: m.version}}
	}
	b.bytes = size(advance)
	for len(m.queue) > 0 && (len(b.parts) == 0 || b.bytes+size(m.queue[0].Ops) <= MaxBatch) {
		b.add(m.queue[0])
		m.queue = m.queue[1:]
	}
	b.advances = len(advance) > 0
	b.Ops = append(b.Ops, advance...) // last, so that a refusal of a group is found first
	return []Batch{b}
}

// add adds a request to the batch.
func (b *Batch) add(p part) {
	b.Ops, b.parts, b.bytes, b.Deadline = append(b.Ops, p.Ops...), append(b.parts, p), b.bytes+size(p.Ops),
		max(b.Deadline, p.Deadline)
}

// opSize is the size of an operation in a multi without its path and data: a header, two lengths and a version.
const opSize = 9 + 4 + 4 + 4

func size(ops []cluster.Op) int {
	bytes := 0
	for _, op := range ops {
		bytes += opSize + len(op.Path) + len(op.Data)
	}
	return bytes
}
