package status

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
)

// Host has the views of all groups of one daemon.
type Host []Daemon

// State returns the state of a daemon with several groups: stuck, connecting while there is no session, or running.
func (h Host) State() string {
	if h.CheckLoops() != nil {
		return "stuck"
	}
	for _, d := range h {
		if d.Session {
			return "running"
		}
	}
	return "connecting"
}

// Age returns the age of the oldest view. A group whose loop does not run publishes nothing new, so it counts only if none runs.
func (h Host) Age() cluster.Duration {
	var oldest, oldestLoop cluster.Duration
	for _, d := range h {
		oldest = max(oldest, d.Age)
		if d.Loop {
			oldestLoop = max(oldestLoop, d.Age)
		}
	}
	return cmp.Or(oldestLoop, oldest)
}

// CheckLoops returns an error if the event loops of all groups are stuck. If only some are, a restart of the daemon would harm the
// other groups; the daemon restarts such a loop by itself.
func (h Host) CheckLoops() error {
	var first error
	for _, d := range h {
		err := d.CheckLoop()
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	if len(h) > 1 {
		return fmt.Errorf("in all %d groups %w", len(h), first)
	}
	return first
}

// maxNamed is the number of groups that an error names.
const maxNamed = 5

// CheckReady returns an error unless the daemon is ready in each of its groups, and the names of the groups in which it is not.
func (h Host) CheckReady() (notReady []string, err error) {
	var reasons []string
	for _, d := range h {
		if err := d.CheckReady(); err != nil {
			notReady = append(notReady, d.Group)
			if len(reasons) < maxNamed {
				reasons = append(reasons, d.Group+": "+err.Error())
			}
		}
	}
	if len(notReady) == 0 {
		return nil, nil
	}
	text := fmt.Sprintf("not ready in %d of %d groups: %s", len(notReady), len(h), strings.Join(reasons, "; "))
	if more := len(notReady) - len(reasons); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return notReady, errors.New(text)
}
