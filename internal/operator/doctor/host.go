package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"zkelectd/internal/operator/status"
)

func (d Daemon) findings(version string) []Finding {
	const check = "daemon"
	switch {
	case d.Err != nil:
		return []Finding{unknown(check, d.Node, d.Err, "")}
	case d.Pid == 0 && d.Answer != "":
		return []Finding{{Fail, check, d.Node, "runs, but is not registered: " + d.Answer,
			"correct that; it then joins by itself"}}
	case d.Pid == 0:
		return []Finding{{Fail, check, d.Node, "does not run: " + d.Absent,
			"start it, as with 'systemctl start zkelectd', and read its log"}}
	}
	var all []Finding
	if len(d.NotIn) > 0 {
		all = append(all, Finding{Fail, check, d.Node, "runs, but is not registered in " + listed(d.NotIn),
			"its log says why"})
	}
	if d.Version != "" && d.Version != version {
		all = append(all, Finding{Warn, check, d.Node, fmt.Sprintf("process %d runs %s, but this binary is %s", d.Pid,
			orUnknown(d.Version), version), "restart the daemon to use this binary"})
	}
	if len(all) == 0 {
		all = append(all, good(check, d.Node, "process %d runs %s", d.Pid, orUnknown(d.Version)))
	}
	return append(all, d.endpoint())
}

func (d Daemon) endpoint() Finding {
	const check = "endpoint"
	switch {
	case d.Endpoint == "":
		return unknown(check, "", errors.New("http.listen is not set"), "set it, for probes, metrics and the page")
	case d.EndpointErr != nil:
		return Finding{Fail, check, d.Endpoint, d.EndpointErr.Error(), "the daemon's log says more"}
	}
	return good(check, d.Endpoint, "the daemon answers that it is ready")
}

// findings judges what the host gives to the guard.
func (h Host) findings() []Finding {
	if h.Err != nil {
		return []Finding{unknown("limits of the guard", "", h.Err, "start the daemon, and run this as its user or as root")}
	}
	return []Finding{h.containment(), h.memory(), h.files(), h.tasks(), h.realtime(), h.watchdogDevice()}
}

func (h Host) containment() Finding {
	const check = "containment"
	const advice = "if guard, daemon and keeper are all killed at once, some of the work may survive: set " +
		"Delegate=yes in the unit, and neither RestrictNamespaces= nor ProtectControlGroups= (docs/safety.md)"
	used := h.InUse
	if used == "" && h.Containment != "auto" {
		used = h.Containment
	}
	switch {
	case h.Unkillable != "":
		return Finding{Fail, check, "", "part of the work cannot be killed: " + h.Unkillable,
			"until it ends, nothing is released"}
	case used == "keeper":
		return Finding{Warn, check, "", "the keeper alone holds the work together", advice}
	case used != "":
		return good(check, "", "%s holds the work together", used)
	case h.DelegatedErr != nil:
		return unknown(check, "", h.DelegatedErr, "")
	case !h.Delegated:
		return Finding{Warn, check, "", "no control group is delegated to the guard, so the keeper alone holds " +
			"the work together", advice}
	}
	return good(check, "", "a control group is delegated to the guard, and holds the work together")
}

func (h Host) memory() Finding {
	const check = "locked memory"
	if h.LimitsErr != nil {
		return unknown(check, "", h.LimitsErr, "")
	}
	seen := fmt.Sprintf("the guard has locked %s", bytesText(h.Locked))
	if h.Limits.Locked == Unlimited || h.CanLock {
		return good(check, "", "%s, without a limit", seen)
	}
	return Finding{Warn, check, "", fmt.Sprintf("%s, and may lock %s, so a stalled disk may delay a kill", seen,
		bytesText(h.Limits.Locked)),
		"set LimitMEMLOCK=infinity in the unit, 'ulimit -l unlimited', or --ulimit memlock=-1 for a container"}
}

// Files that a daemon needs: for connections to its HTTP API and for itself, and for the work of each group.
const (
	baseFiles  = 512
	groupFiles = 16
)

func (h Host) files() Finding {
	const check = "open files"
	if h.LimitsErr != nil {
		return unknown(check, "", h.LimitsErr, "")
	}
	if need := uint64(baseFiles + groupFiles*h.Groups); h.Limits.Files < need {
		return Finding{Warn, check, "", fmt.Sprintf("the guard may open %d files, and %s may need %d", h.Limits.Files,
			plural(h.Groups, "group"), need), "set LimitNOFILE= in the unit"}
	}
	return good(check, "", "the guard may open %s files", countText(h.Limits.Files))
}

// minTasks is how many more processes and threads must be possible: those of a child, of hooks and of probes.
const minTasks = 64

func (h Host) tasks() Finding {
	const check = "processes"
	switch {
	case h.TasksErr != nil:
		return unknown(check, "", h.TasksErr, "'systemctl show -p TasksCurrent,TasksMax zkelectd' shows both for the unit")
	case h.LimitsErr != nil:
		return unknown(check, "", h.LimitsErr, "")
	case h.TasksMax != Unlimited && h.Tasks+minTasks > h.TasksMax:
		return Finding{Warn, check, "", fmt.Sprintf("the control group of the guard has %d tasks of at most %d",
			h.Tasks, h.TasksMax), "raise TasksMax= of the unit: the work could not be started"}
	case h.Limits.Processes < minTasks:
		return Finding{Warn, check, "", fmt.Sprintf("the user of the guard may have %d processes", h.Limits.Processes),
			"raise LimitNPROC= of the unit: the work could not be started"}
	}
	return good(check, "", "%d tasks in the control group of the guard, %s permitted", h.Tasks, countText(h.TasksMax))
}

func (h Host) realtime() Finding {
	const check = "real-time priority"
	switch {
	case !h.Realtime:
		return good(check, "", "not configured (LimitRTPRIO=1 in the unit)")
	case h.SchedulerErr != nil:
		return unknown(check, "", h.SchedulerErr, "")
	case h.Scheduler != "SCHED_RR":
		return Finding{Warn, check, "", "LimitRTPRIO= is set, but the guard runs with " + h.Scheduler,
			"set RestrictRealtime=no in the unit, and permit sched_setattr in its SystemCallFilter=; then restart it"}
	}
	return good(check, "", "the guard runs with %s", h.Scheduler)
}

func (h Host) watchdogDevice() Finding {
	const check = "watchdog device"
	w := h.WatchdogDevice
	switch {
	case w == nil:
		return good(check, "", "not configured (watchdog_device.mode)")
	case w.State == status.DeviceUnusable && w.Required:
		return Finding{Fail, check, w.Device, "it is required and cannot be used, so this host does not lead: " +
			w.Reason, "see docs/watchdog-device.md"}
	case w.State == status.DeviceUnusable:
		return Finding{Warn, check, w.Device, "it is not used, so nothing resets this host if it stands still: " +
			w.Reason, "see docs/watchdog-device.md"}
	case len(w.Warnings) > 0:
		return Finding{Warn, check, w.Device, w.Identity + ": " + strings.Join(w.Warnings, "; "),
			"see docs/watchdog-device.md"}
	}
	return good(check, w.Device, "%s (%s), timeout %s: it resets this host at most %s after the end of a lease",
		w.State, w.Identity, w.Timeout, w.ResetAfterLease)
}

// bytesText returns a number of bytes for people.
func bytesText(n uint64) string {
	if n == Unlimited {
		return "any amount"
	}
	for _, unit := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size {
			return strconv.FormatFloat(float64(n)/float64(unit.size), 'f', 1, 64) + " " + unit.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// countText returns a number for people.
func countText(n uint64) string {
	if n == Unlimited {
		return "any number of"
	}
	return strconv.FormatUint(n, 10)
}
