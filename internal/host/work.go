package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// Timing of the checks of the work.
const (
	workCheckInterval = 15 * time.Second // between two checks of all groups
	workCheckTimeout  = 5 * time.Second  // after that a file system or systemd counts as hanging
)

// checkWork checks from time to time whether this host could start the work of its groups, until ctx ends: a standby
// would notice only when it takes over. The host may be elected anyway, unless its health probe fails.
func (h *Host) checkWork(ctx context.Context) {
	checks := newBoundedChecks(workCheckTimeout)
	for {
		var common []error
		if check := h.opt.CheckFiles; check != nil {
			c := h.config()
			common = checks.run(ctx, h, func() []error { return []error{check(c), h.checkCertificate(c)} })
		}
		for _, r := range h.resources() {
			c := r.config()
			found := checks.run(ctx, r, func() []error { return hostcheck.Group(ctx, c) })
			if ctx.Err() != nil {
				return
			}
			r.setProblems(slices.Concat(found, common))
		}
		t := time.NewTimer(workCheckInterval)
		select {
		case <-t.C:
		case <-h.recheck:
		case <-ctx.Done():
		}
		if t.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// checkCertificate returns an error if the certificate for ZooKeeper must be renewed soon. One that cannot be read is
// an error of [Options.CheckFiles].
func (h *Host) checkCertificate(c config.Config) error {
	cert, err := operator.Access(c, os.Getenv).TLS.Certificate()
	if err != nil || cert == nil {
		cert = &zk.Certificate{}
	}
	h.counters.Update(func(t *status.Totals) {
		t.Certificate, t.CertificateEnd, t.RenewBy = cert.File, cert.End, cert.RenewBy()
	})
	if cert.File == "" {
		return nil
	}
	return cert.Check(time.Now())
}

// boundedChecks runs checks that may hang, for each key one at a time: a file system that hangs must not keep others
// from being checked, nor make goroutines pile up.
type boundedChecks struct {
	limit   time.Duration
	pending map[any]chan []error // of the checks that hang
}

func newBoundedChecks(limit time.Duration) *boundedChecks {
	return &boundedChecks{limit: limit, pending: make(map[any]chan []error)}
}

// run returns what check returns, or an error if it takes long or if an earlier check with this key still hangs; nil at
// the end of ctx.
func (b *boundedChecks) run(ctx context.Context, key any, check func() []error) []error {
	late := []error{fmt.Errorf("the programs and files of the configuration cannot be checked: a file system has not "+
		"answered for %s", b.limit)}
	if before := b.pending[key]; before != nil {
		select {
		case <-before: // its result may be that of an older configuration
			delete(b.pending, key)
		default:
			return late
		}
	}
	done := make(chan []error, 1)
	go func() { done <- check() }() // ends when the file system answers
	t := time.NewTimer(b.limit)
	defer t.Stop()
	select {
	case found := <-done:
		return found
	case <-t.C:
		b.pending[key] = done
		return late
	case <-ctx.Done():
		return nil
	}
}

// setProblems records, logs and publishes why this host could not start the work; nil errors do not count.
func (r *resource) setProblems(found []error) {
	var texts []string
	for _, err := range found {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	r.notice(&r.problems, problemTexts(texts), "this host is not ready to lead: correct it before a failover",
		"this host is ready to lead: the check of the work finds no problem any more")
}

// notice replaces a list of problems. If it has changed, it logs each new one with a message, and that there are none
// any more with another, and publishes the list.
func (r *resource) notice(list *atomic.Pointer[[]string], next []string, problem, none string) {
	before := *list.Load()
	if slices.Equal(before, next) {
		return
	}
	list.Store(&next)
	for _, text := range next {
		if !slices.Contains(before, text) {
			r.log.Warn(problem, "reason", text)
		}
	}
	if len(next) == 0 {
		r.log.Info(none)
	}
	r.publishProblems()
}

// publishProblems makes the members publish the node's record with the problems in force.
func (r *resource) publishProblems() {
	if m := r.host.memberOf(r); m != nil {
		if i := m.instance(); i != nil {
			r.applyTo(i, false) // if it ends, the next one registers with them
		}
	}
}

// problemTexts returns problems as a node's record contains them.
func problemTexts(problems []string) (all []string) {
	for _, problem := range problems {
		for text := range strings.SplitSeq(problem, "\n") {
			if len(all) < cluster.MaxProblems {
				all = append(all, strings.ToValidUTF8(text[:min(len(text), cluster.MaxProblem)], ""))
			}
		}
	}
	return all
}
