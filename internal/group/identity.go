package group

import (
	"errors"
	"os"

	"zkelectd/internal/cluster"
	"zkelectd/internal/procinfo"
)

// Identity distinguishes a zkelectd from every other one, by its host and its guard's process.
type Identity struct {
	Host    string
	PID     int
	Boot    string
	Started uint64
}

// Identify returns the identity of the zkelectd whose guard is process pid.
func Identify(pid int) Identity {
	started, _ := procinfo.StartTime(pid)
	boot, _ := procinfo.BootID()
	return Identity{Host: procinfo.Hostname(), PID: pid, Boot: boot, Started: started}
}

// otherAlive reports whether a record is of another zkelectd on this host that is running. It is false for those of other
// hosts, of which nothing is known.
func (me Identity) otherAlive(n cluster.Node) bool {
	if n.Host != me.Host || n.Boot != me.Boot || n.PID == me.PID {
		return false
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started == n.Started
}

// isOwnPast reports whether a record is of an earlier run: of this guard, or of a process of this host that is dead.
func (me Identity) isOwnPast(n cluster.Node) bool {
	switch {
	case n.Host != me.Host:
		return false
	case n.Boot != me.Boot || n.PID == me.PID:
		return true
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started != n.Started || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone)
}
