package daemon

import "zkelectd/internal/procinfo"

// identity tells a zkelectd, by its guard's process, from every other one on this host and elsewhere.
type identity struct {
	host    string
	pid     int
	boot    string
	started uint64
}

func identify(pid int) identity {
	started, _ := procinfo.StartTime(pid)
	boot, _ := procinfo.BootID()
	return identity{host: procinfo.Hostname(), pid: pid, boot: boot, started: started}
}
