package web

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/work/applease"
)

const (
	leasePath = "/v1/lease"
	// maxLeaseRequests limits concurrent requests for application leases, which wait. With maxRequests, it is less than
	// maxConns.
	maxLeaseRequests = 64
	// maxLeaseWait limits how long a request may wait.
	maxLeaseWait = time.Minute
)

// leaseResponse is the response of /v1/lease. Times are in nanoseconds, so that a client needs no parser for durations.
type leaseResponse struct {
	stamp
	// Leading reports whether the client has a lease, and Stop whether it must stop its work before the end and return the
	// lease.
	Leading bool `json:"leading"`
	Stop    bool `json:"stop"`
	// Lease is the id of the lease, Token its fencing token, and Value what the leader's work publishes.
	Lease string `json:"lease,omitempty"`
	Token int64  `json:"token,omitempty"`
	Value string `json:"value,omitempty"`
	// LeaseEnd and Boottime, the time of the response, are readings of CLOCK_BOOTTIME; LeaseLeft is the difference.
	LeaseEnd  int64 `json:"lease_end_ns"`
	LeaseLeft int64 `json:"lease_left_ns"`
	Boottime  int64 `json:"boottime_ns"`
}

// leaseRequest is the query of a request.
type leaseRequest struct {
	group *Group
	applease.Request
}

// lease hands out, extends or takes back an application lease, for clients of the unix socket.
func (a *api) lease(w http.ResponseWriter, r *http.Request) {
	q, code, why := a.leaseRequest(r)
	if code != 0 {
		a.fail(w, code, nil, why)
		return
	}
	g := q.group
	switch v := g.view(); {
	case r.Method == http.MethodDelete && g.ReturnApplicationLease(q.ID, q.Process):
		a.respond(w, http.StatusOK, leaseResponse{stamp: stampOf(v), Boottime: int64(boottime.Now())})
		return
	case r.Method == http.MethodDelete:
		a.fail(w, http.StatusNotFound, g, "no such lease is out: it was returned, or it is over")
		return
	case !a.requireLoop(w, g):
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(q.Wait + writeTimeout))
	answer, err := g.ApplicationLease(r.Context(), q.Request)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		a.fail(w, http.StatusServiceUnavailable, g, err.Error())
		return
	}
	now := boottime.Now()
	a.respond(w, http.StatusOK, leaseResponse{
		stamp: stampOf(g.view()), Leading: answer.Left(now) > 0, Stop: answer.Stop,
		Lease: answer.ID, Token: answer.Term, Value: answer.Value,
		LeaseEnd: int64(answer.End), LeaseLeft: int64(answer.Left(now)), Boottime: int64(now),
	})
}

// leaseRequest reads a request. It returns the code and the reason of a refusal.
func (a *api) leaseRequest(r *http.Request) (q leaseRequest, code int, why string) {
	conn := connOf(r)
	if conn == nil || conn.peer == nil {
		return q, http.StatusForbidden, "leases are for programs on this host: use the unix socket (http.listen: unix:PATH)"
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, http.StatusBadRequest, "the query is invalid: " + err.Error()
	}
	for name, values := range query {
		if len(values) > 1 {
			return q, http.StatusBadRequest, sanitizeName(name) + " appears twice"
		}
	}
	name, groups := query.Get("group"), a.opt.Groups()
	switch {
	case name != "":
		if q.group, code, why = a.find(name, false); q.group == nil {
			return q, code, why
		}
	case len(groups) != 1:
		return q, http.StatusBadRequest, "this daemon has several groups: add ?group= and one of the names in " + groupsPath
	default:
		q.group = groups[0]
	}
	if text := query.Get("wait"); text != "" {
		if q.Wait, err = time.ParseDuration(text); err != nil || q.Wait < 0 || q.Wait > maxLeaseWait {
			return q, http.StatusBadRequest, "wait must be a duration of at most " + maxLeaseWait.String() + ", such as 10s"
		}
	}
	switch query.Get("bound") {
	case "", "false":
	case "true":
		q.Bound = true
	default:
		return q, http.StatusBadRequest, "bound must be true or false"
	}
	q.ID = query.Get("lease")
	pid := int(conn.peer.Pid)
	q.Process = applease.Process{Pid: pid, Open: func() (int, error) { return openPeer(conn.Conn, pid) }}
	return q, 0, ""
}

// openPeer returns a pidfd of the process at the other end of a unix socket. Before Linux 6.5 it may be one of a later
// process with the same pid, if the one that connected is dead: then nothing proves that.
func openPeer(conn net.Conn, pid int) (pidfd int, err error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, errors.ErrUnsupported
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return -1, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { pidfd, inner = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	if err = errors.Join(err, inner); errors.Is(err, unix.ENOPROTOOPT) {
		pidfd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return -1, err
	}
	return pidfd, nil
}
