// Package renewal merges the RENEWs of the groups that share a ZooKeeper session into few transactions (docs/protocol.md,
// Merged renewals). It is pure: a [Merger] says which batches to send, and sends nothing itself.
package renewal

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// Answer is the outcome of the RENEW that a group posted last. Its error matches [cluster.ErrNotSent], [cluster.ErrUnknown] or
// [cluster.ErrSessionEnded] if the outcome is not known; any other error is a refusal of this RENEW.
type Answer struct {
	ID int
	transition.RenewDone
}

// Batch is one transaction with the requests of one or more groups.
type Batch struct {
	Ops  []cluster.Op
	Sent time.Duration
	// Deadline is the latest deadline of the requests in it: a later reply is of no use.
	Deadline time.Duration

	parts []part
	bytes int
}

// part is one group's request in a batch.
type part struct {
	id   int
	post uint64
	transition.Renew
}

// MaxBatch bounds the size of a batch in bytes: about 550 groups. A larger request is sent alone.
const MaxBatch = 128 << 10

// variation is by how much an interval between two renewals is shortened at most, as a share of it: hosts whose renewals
// coincide, for instance after the servers' restart, must not stay aligned.
const variation = 0.1

// Merger collects the requests of groups. The ids of two groups, or of two instances of a group, must differ. It must be used by
// one goroutine only.
type Merger struct {
	random  func() float64
	shorten float64 // the share by which the intervals of this round are shortened
	posts   uint64
	latest  map[int]uint64 // the last post of each group that is neither answered nor withdrawn
	waiting map[int]waiting
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

// Post posts a group's RENEW. It is good for one renewal, and replaces the group's last one; if that is under way, its result is
// discarded.
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
	var at time.Duration
	for _, w := range m.waiting {
		at = cluster.Earliest(at, max(1, w.due))
	}
	return at
}

// Take returns the batches to send now: all waiting requests if one of them is due, else none. Requests past their deadline are
// dropped without an answer.
func (m *Merger) Take(now time.Duration) []Batch {
	if m.Wake() > now {
		return nil
	}
	parts := make([]part, 0, len(m.waiting))
	for _, w := range m.waiting {
		parts = append(parts, w.part)
	}
	clear(m.waiting)
	m.shorten = variation * m.random()
	// The lease that ends first is renewed first.
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.id, b.id)) })
	return m.batches(now, parts, MaxBatch)
}

// Done handles the outcome of a batch, as returned by [cluster.Writer]. It returns the results for the groups, and what to send
// now: if the batch was refused, only the group of the refused operation gets the refusal, and all others are sent again, each by
// itself, so that many refusals at once cost two rounds only.
func (m *Merger) Done(now time.Duration, b Batch, err error) (answers []Answer, again []Batch) {
	var culprit *part
	refused := err != nil && !unsettled(err)
	if refused {
		culprit, err = b.culprit(err)
	}
	var others []part
	for i, p := range b.parts {
		switch {
		case m.latest[p.id] != p.post: // replaced or withdrawn
		case refused && culprit != &b.parts[i]:
			others = append(others, p)
		default:
			delete(m.latest, p.id)
			answers = append(answers, Answer{p.id, transition.RenewDone{Term: p.Term, Held: p.Held, Sent: b.Sent, Err: err}})
		}
	}
	return answers, m.batches(now, others, 0)
}

// unsettled reports whether err says that the outcome is not known, or that nothing was sent.
func unsettled(err error) bool {
	return errors.Is(err, cluster.ErrNotSent) || errors.Is(err, cluster.ErrUnknown) || errors.Is(err, cluster.ErrSessionEnded)
}

// culprit returns the part that a refusal is about, and the refusal as that part alone would have got it; nil if it names none of
// several.
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

// batches puts requests into batches of at most limit bytes, and at least one request. It drops those past their deadline.
func (m *Merger) batches(now time.Duration, parts []part, limit int) []Batch {
	var out []Batch
	for _, p := range parts {
		if now >= p.Deadline {
			delete(m.latest, p.id)
			continue
		}
		need := size(p.Ops)
		if len(out) == 0 || out[len(out)-1].bytes+need > limit {
			out = append(out, Batch{Sent: now})
		}
		b := &out[len(out)-1]
		b.Ops, b.parts, b.bytes, b.Deadline = append(b.Ops, p.Ops...), append(b.parts, p), b.bytes+need, max(b.Deadline, p.Deadline)
	}
	return out
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
