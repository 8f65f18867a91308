package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"zkelectd/internal/operator/status"
)

// service sends reports to the service manager (systemd) through the guard. It is safe for concurrent use.
type service struct {
	notify func(string)

	mu   sync.Mutex
	last string // status line
}

// ready reports that the start or a reload is complete.
func (s *service) ready(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = line
	s.notify(sd.SdNotifyReady + "\nSTATUS=" + line)
}

// reloading reports that a reload has begun; ready ends it.
func (s *service) reloading() {
	s.notify(sd.SdNotifyReloading + "\n" + strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
}

// status sends a status line unless it equals the last one.
func (s *service) status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line != s.last {
		s.last = line
		s.notify("STATUS=" + line)
	}
}

// keepAlive sends a status line, and feeds the service manager's watchdog while no event loop runs. Call stop to end
// that.
func (h *Host) keepAlive(line string) (stop func()) {
	h.service.status(line)
	every := h.opt.Guard.WatchdogInterval()
	if every == 0 {
		return func() {}
	}
	return inBackground(context.Background(), func(ctx context.Context) {
		for ok := true; ok; ok = sleep(ctx, every) {
			h.opt.Guard.ReportAlive()
		}
	})
}

// line returns the status line for the service manager.
func (h *Host) line() string {
	groups := h.Groups()
	refused := false
	for _, g := range groups {
		refused = refused || g.lastReload.Load().refused != ""
	}
	if len(groups) == 1 {
		return line(groups[0].View(), refused)
	}
	states := make(map[string]int)
	for _, g := range groups {
		states[g.View().State()]++
	}
	text := fmt.Sprintf("%d groups", len(groups))
	separator := ": "
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text += fmt.Sprintf("%s%d %s", separator, states[state], state)
		separator = ", "
	}
	return text + refusedNote(refused)
}

func refusedNote(refused bool) string {
	if !refused {
		return ""
	}
	return "; the last reload was refused (see the log)"
}

// line returns the status line of a daemon with one group: its phase, and its term or the elected member.
func line(v status.Daemon, refused bool) string {
	text := v.Phase
	if v.Membership == status.MembershipRefused {
		return status.Printable(v.Membership + ": " + v.MembershipReason)
	}
	if v.Elector {
		text += ", elector"
	}
	if v.Term != 0 {
		text += fmt.Sprintf(", term %d", v.Term)
	} else {
		text += "; " + decision(v)
	}
	// Parts of it were written by other hosts: a line break would begin another message.
	return status.Printable(text + refusedNote(refused))
}

// decision describes who was elected.
func decision(v status.Daemon) string {
	switch {
	case v.SnapshotAt == 0:
		return "nothing read yet"
	case v.ElectedTerm == 0:
		return "no member is elected"
	case v.Elected == v.Node:
		return fmt.Sprintf("elected in term %d", v.ElectedTerm)
	default:
		return fmt.Sprintf("%s (site %s) is elected in term %d", v.Elected, v.ElectedSite, v.ElectedTerm)
	}
}
