package group

import (
	"errors"
	"os"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/procinfo"
)

// Identity identifies a zkelectd by its host and its guard's process.
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

// otherAlive reports whether n is the record of another zkelectd that is running on this host. It returns false for records of
// other hosts, because their processes are unknown.
func (me Identity) otherAlive(n cluster.Node) bool {
	if n.Host != me.Host || n.Boot != me.Boot || n.PID == me.PID {
		return false
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started == n.Started
}

// isOwnPast reports whether n is the record of an earlier run: of this guard, or of a process on this host that is dead.
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
