package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// service is what the service manager (systemd) is told, through the guard. It belongs to the daemon's goroutine.
type service struct {
	notify func(string)
	said   string
}

// ready says that the daemon does what it is there for: its start, or a reload, is over.
func (s *service) ready(line string) {
	s.said = line
	s.notify(sd.SdNotifyReady + "\nSTATUS=" + line)
}

// reloading says that a reload has begun; ready ends it.
func (s *service) reloading() {
	s.notify(sd.SdNotifyReloading + "\n" + strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
}

// status shows a line to people, if it is not the last one.
func (s *service) status(line string) {
	if line != s.said {
		s.said = line
		s.notify("STATUS=" + line)
	}
}

// seeking shows, and lets the watchdog know, that the daemon is alive while it waits for a server: for that no loop turns.
// It is over with the returned function.
func (d *Daemon) seeking(line string) (found func()) {
	d.service.status(line)
	every := d.opt.Guard.WatchdogInterval()
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with found
		defer close(done)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			d.opt.Guard.ReportAlive()
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// line is the daemon's role, its term, and who leads, for the service manager's status.
func line(v status.Daemon, snap cluster.Snapshot, refused bool) string {
	text := v.Phase
	if v.Elector {
		text += ", elector"
	}
	if v.Term != 0 {
		text += fmt.Sprintf(", term %d", v.Term)
	} else {
		text += "; " + leader(v, snap)
	}
	if refused {
		text += "; the last reload was refused (see the log)"
	}
	// Others have written a part of it: a line break would begin another message.
	return status.Plain(text)
}

// leader tells who was elected, and where that can be seen, whether it leads yet.
func leader(v status.Daemon, snap cluster.Snapshot) string {
	switch e := snap.Elected.Record; {
	case snap.At == 0:
		return "nothing read yet"
	case !snap.Elected.Readable():
		return "nobody is elected"
	case v.Elected == v.Node:
		return fmt.Sprintf("elected in term %d", e.Term)
	default:
		return fmt.Sprintf("%s (site %s) is elected in term %d", e.Node, e.Site, e.Term)
	}
}
