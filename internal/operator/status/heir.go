package status

import (
	"errors"

	"zkelectd/internal/cluster"
)

// describeHeir sets who is elected next if the leader is lost, as long as there is one that can be lost.
func (g *Group) describeHeir(s cluster.Snapshot) {
	heir, known := s.NextLeader()
	if !known || g.State == StateNone || s.Elected.Record.Node != g.Leader {
		return
	}
	g.heirless = heir.Incarnation == ""
	if _, alive := s.Member(heir.Incarnation); alive {
		g.Heir, g.HeirSite = heir.Node, heir.Site
	}
}

// isHeir reports whether a member is the published heir.
func isHeir(s cluster.Snapshot, m cluster.Member) bool {
	heir, known := s.NextLeader()
	return known && heir.Incarnation == m.Name
}

// heirText describes the heir; empty if none was published.
func (g Group) heirText() string {
	switch {
	case g.Heir != "":
		return g.Heir + " (site " + g.HeirSite + "), elected next if " + g.Leader + " is lost"
	case g.heirless && g.Leader != "":
		return "none: if " + g.Leader + " is lost, there is no leader"
	}
	return ""
}

// CheckHeir returns an error unless the daemon is the heir, and its knowledge of the group is fresh.
func (d Daemon) CheckHeir() error {
	switch err := d.CheckReady(); {
	case err != nil:
		return err
	case d.IsHeir:
		return nil
	case d.Phase != "standby":
		return errors.New("this daemon is " + d.Phase + ", not a standby")
	case d.Heir != "":
		return errors.New("the heir is " + d.Heir)
	}
	return errors.New("there is no heir, or none is published")
}
