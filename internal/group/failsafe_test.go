package group

import (
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition/failsafe"
)

// boundAgent is the agent of a daemon that is bound when it is asked for a veto first, and no longer the second time.
type boundAgent struct{ asked atomic.Int32 }

func (a *boundAgent) Veto(string, int64) (bound time.Duration, err error) {
	if a.asked.Add(1) == 1 {
		return boottime.Now() + 100*time.Millisecond, nil
	}
	return 0, nil
}

func (*boundAgent) Send(cluster.Paths, []failsafe.Message, time.Duration, func(failsafe.Reply)) {}
func (*boundAgent) Gone(string, int64)                                                          {}
func (*boundAgent) Suspect()                                                                    {}

// A member that may have promised something acquires only after its daemon has recorded that it promises nothing any
// more, which it cannot while it is bound.
func TestABoundMemberDoesNotTakeOver(t *testing.T) {
	server := storetest.NewServer()
	joinFailsafe := func(id string) (*member, *boundAgent) {
		agent := &boundAgent{}
		same := func(s memorySession) Session { return s }
		return joinWith(t, server, id, 0, same, func(_ *Group, s *Settings, o *InstanceOptions) {
			s.Rules.Failsafe.Enabled = true
			o.Failsafe = &Failsafe{Agent: agent, Node: cluster.FailsafeNode{Key: id, Address: id}, Start: 1}
		}), agent
	}
	a, _ := joinFailsafe("a")
	a.until(t, "a leads", status.Daemon.Leads)
	_, agent := joinFailsafe("b")
	testhelper.Eventually(t, 30*time.Second, "b must promise", func() bool { return fence(t, server).Failsafe != nil })
	server.Expire(a.conn.SessionID())
	testhelper.Eventually(t, 30*time.Second, "b acquires", func() bool { return fence(t, server).Node == "b" })
	if n := agent.asked.Load(); n < 2 {
		t.Errorf("it was asked %d times: b has acquired although it was bound", n)
	}
}
