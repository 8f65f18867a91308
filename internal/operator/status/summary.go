package status

import "zkelectd/internal/cluster"

// Summary is a group in a list of the groups of one daemon, as that daemon sees it.
type Summary struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// State is that of this daemon in the group, see [Daemon.State].
	State            string `json:"state"`
	Membership       string `json:"membership,omitempty"`
	MembershipReason string `json:"membership_reason,omitempty"`
	// Leads reports whether this daemon leads the group, Elector whether it is its elector.
	Leads   bool `json:"leads"`
	Elector bool `json:"elector"`
	// Elected is the node of the newest decision, of Term.
	Elected     string `json:"elected,omitempty"`
	ElectedSite string `json:"elected_site,omitempty"`
	Term        int64  `json:"term,omitempty"`
	// Holder is the holder of leadership; nil if this daemon does not know it, see [Leadership].
	Holder   *Holder          `json:"holder,omitempty"`
	Paused   bool             `json:"paused,omitempty"`
	Problems []string         `json:"problems,omitempty"`
	Age      cluster.Duration `json:"age"`
}

// Summary returns the view in short.
func (d Daemon) Summary() Summary {
	return Summary{
		Group: d.Group, Root: d.Root, State: d.State(), Membership: d.Membership, MembershipReason: d.MembershipReason,
		Leads: d.Leads(), Elector: d.Elector, Elected: d.Elected, ElectedSite: d.ElectedSite, Term: d.LatestTerm(),
		Holder: d.Holder, Paused: d.Paused, Problems: d.Problems(), Age: d.Age,
	}
}

// Problems returns what is wrong with the group, as far as this daemon knows.
func (d Daemon) Problems() []string {
	var all []string
	add := func(text, detail string) {
		if detail != "" {
			all = append(all, text+detail)
		}
	}
	if err := d.CheckLoop(); err != nil {
		all = append(all, err.Error())
	}
	if !d.takesPart() && d.MembershipReason != "" {
		all = append(all, d.membershipError().Error())
	}
	add("no member is eligible: ", d.Note)
	add("a process of the work cannot be killed: ", d.Unkillable)
	add("this daemon is too old for a record: ", d.Newer)
	add("this host is unhealthy: ", d.Unhealthy)
	if d.WatchdogDevice != nil && !d.WatchdogDevice.Required { // else the host is unhealthy
		add("the watchdog device is not used: ", d.WatchdogDevice.Reason)
	}
	all = append(all, d.Failsafe.Problems()...)
	add("", d.Drift)
	add("", d.SlotsDrift)
	return all
}
