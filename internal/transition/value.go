package transition

import (
	"time"

	"zkelectd/internal/cluster"
)

// This file has the value that the work publishes with its leadership (docs/protocol.md, Values).

// value is what the work of a term publishes.
type value struct {
	wanted string        // what current is to have
	newer  bool          // wanted was set since the child was started, so it is newer than what the child was ready with
	at     time.Duration // when current was written last
	maybe  bool          // a VALUE of unknown outcome may still take effect
}

// valuePause is the least time between two writes of current: values that change all the time must not keep RENEW
// waiting.
const valuePause = time.Second

// valueDiffers reports whether current does not have the value that it should have, although the work goes on.
func (m *Machine) valueDiffers() bool {
	t := &m.term
	return m.leadsOn() && t.task == taskUp && t.value.wanted != t.current.Value
}

// sendValue sends VALUE if it is due, the last value only. RENEW is more important: while ZooKeeper does not answer,
// and if it is so slow that the lease would hardly last for the replies to both.
func (m *Machine) sendValue() {
	if !m.valueDiffers() || m.term.failsafe.failing || !m.maySend() || !m.due(m.term.value.at+valuePause) {
		return
	}
	if l := m.term.lease; m.now+2*l.took+m.opt.Budget.Renew/2 > l.deadline {
		return // RENEW is posted, and its reply brings this here again
	}
	m.term.sending = m.term.current
	m.term.sending.Value = m.term.value.wanted
	m.term.value.at = m.now
	m.send(TxValue, m.opt.Paths.ValueTx(m.term.holding, m.term.sending), m.term.lease.deadline)
}

// noteCurrent notes that current has a record, in a version. No VALUE that was sent before can follow.
func (m *Machine) noteCurrent(current cluster.Current, version int32) {
	m.term.current, m.term.holding.Current = current, version
	m.term.value.at, m.term.value.maybe = m.now, false
}

// readValueBack handles a snapshot that may show the outcome of a VALUE. The version before it proves nothing: it may
// still take effect.
func (m *Machine) readValueBack(refused error) {
	c := m.snap.Current
	switch {
	case c.Stat.Version == m.term.holding.Current && refused != nil:
		m.replacedBy(refused, "RENEW")
	case c.Stat.Version == m.term.holding.Current:
	case c.Readable() && c.Record.Term == m.term.number && c.Record.State == cluster.CurrentReady &&
		c.Record.Incarnation == m.opt.Self.Name:
		m.noteCurrent(c.Record, c.Stat.Version)
	default:
		m.lose(Stop{Reason: "leader/current was changed by somebody else"})
	}
}
