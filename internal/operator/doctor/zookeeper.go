package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (c Config) findings() []Finding {
	const check = "configuration"
	var all []Finding
	for _, err := range c.Errors {
		all = append(all, Finding{Fail, check, "", err.Error(), "correct it; 'zkelectd check' shows the rest"})
	}
	for _, text := range c.Warnings {
		all = append(all, Finding{Warn, check, "", text, "'zkelectd check --print' shows the configuration"})
	}
	if len(all) == 0 {
		where := c.File
		if where == "" {
			where = "flags, environment and defaults"
		}
		all = append(all, good(check, "", "%s: valid, %s", where, plural(c.Groups, "group")))
	}
	return all
}

// slowShare is the share of the session timeout that a write may take: a leader renews its lease several times in each.
const slowShare = 10

func (s Server) finding(asked time.Duration) Finding {
	const check = "server"
	if s.Err != nil {
		advice := "start the server, or open the way to it; then look at its log"
		if s.Connect > 0 {
			advice = "the server can be reached: look at its log"
		}
		return Finding{Fail, check, s.Name, "does not serve sessions: " + s.Err.Error(), advice}
	}
	seen := fmt.Sprintf("serves sessions, connected in %s, a write took %s", round(s.Connect), round(s.Close))
	switch {
	case s.StatusErr == nil:
		seen = fmt.Sprintf("%s %s, %s", s.Mode, s.Version, seen)
	default:
		seen += "; mode and version are not known: " + s.StatusErr.Error()
	}
	if slowest := max(s.Open, s.Close); slowest*slowShare > asked {
		return Finding{Warn, check, s.Name, fmt.Sprintf("%s, and opening a session %s", seen, round(s.Open)),
			fmt.Sprintf("that is much for a session timeout of %s: look at the disk, memory and network of the servers", asked)}
	}
	return good(check, s.Name, "%s", seen)
}

// isReachedOtherwise reports whether this is probably the second address of a server that serves: most names with
// addresses of IPv4 and of IPv6 are those of one host, and often only one of the two leads there.
func (s Server) isReachedOtherwise(all []Server) bool {
	return s.Err != nil && s.Connect == 0 && slices.ContainsFunc(all, func(o Server) bool {
		return o.Err == nil && o.Host == s.Host && o.IPv6 != s.IPv6
	})
}

// ensemble compares the servers.
func ensemble(all []Server, read Session) (found []Finding) {
	const check = "ensemble"
	var versions, grants, down []string
	for _, s := range all {
		switch {
		case s.Err != nil:
			down = append(down, s.Name)
			continue
		case s.Version != "" && !slices.Contains(versions, s.Version):
			versions = append(versions, s.Version)
		}
		if g := s.Granted.String(); !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	up := len(all) - len(down)
	switch {
	case up == 0:
		return []Finding{{Fail, check, "", fmt.Sprintf("none of %s serves sessions", plural(len(all), "server")),
			"no leader can be elected: see the servers above"}}
	case len(down) > 0 && 2*(up-1) <= len(all):
		found = append(found, Finding{Warn, check, "", fmt.Sprintf("%d of %d servers serve sessions", up, len(all)),
			"the loss of one more would stop all elections: start " + listed(down)})
	}
	if len(read.Foreign) > 0 {
		differ := fmt.Sprintf("%s and %s are of different ensembles, or sessions are local to a server "+
			"(localSessionsEnabled)", read.Server, listed(read.Foreign))
		found = append(found, Finding{Fail, check, "", differ,
			"correct zookeeper.servers on all hosts: members that reach different ensembles are two groups, each with a leader"})
	}
	if read.ForeignErr != nil && len(all) > 1 {
		found = append(found, unknown(check, "", read.ForeignErr, "the servers may be of different ensembles"))
	}
	found = append(found, judgeVersions(all)...)
	if len(versions) > 1 {
		found = append(found, Finding{Warn, check, "", "the servers have different versions: " +
			strings.Join(versions, ", "), "finish the upgrade of ZooKeeper"})
	}
	if len(grants) > 1 {
		found = append(found, Finding{Warn, check, "", "the servers grant different session timeouts: " +
			strings.Join(grants, ", "),
			"give all servers the same tickTime, minSessionTimeout and maxSessionTimeout, or set " +
				"zookeeper.min_session_timeout to the smallest"})
	}
	if len(found) == 0 {
		found = append(found, good(check, "", "%d of %d servers serve sessions", up, len(all)))
	}
	return found
}

// judgeVersions warns of servers that get no fixes, or that no release was tested with: make versions-test has those
// that each one is.
func judgeVersions(all []Server) (found []Finding) {
	const check = "ensemble"
	var unknown []string
	seen := make(map[string]bool)
	for _, s := range all {
		var major, minor int
		n, _ := fmt.Sscanf(s.Version, "%d.%d.", &major, &minor)
		switch {
		case s.Err != nil, seen[s.Version]:
			continue
		case strings.HasPrefix(s.Version, "ClickHouse"):
			found = append(found, Finding{Fail, check, "", s.Name + " is not ZooKeeper but " + s.Version,
				"use ZooKeeper: other servers don't let a session go on over another connection (docs/zookeeper.md)"})
		case n < 2:
			unknown = append(unknown, s.Name)
			continue
		case major != 3 || minor > 9:
			found = append(found, Finding{Warn, check, "", fmt.Sprintf("ZooKeeper %s of %s is newer than all that "+
				"this version was tested with", s.Version, s.Name),
				"look for a newer zkelectd, or use a version that docs/zookeeper.md has"})
		case minor < 5:
			found = append(found,
				Finding{Warn, check, "", fmt.Sprintf("ZooKeeper %s of %s has no TLS, and gets no fixes", s.Version, s.Name),
					"upgrade to a version that docs/zookeeper.md has"})
		case minor < 8:
			found = append(found, Finding{Warn, check, "", fmt.Sprintf("ZooKeeper %s of %s gets no fixes", s.Version, s.Name),
				"upgrade to a version that docs/zookeeper.md has"})
		}
		seen[s.Version] = true
	}
	if len(unknown) > 0 {
		found = append(found, Finding{Warn, check, "", "the version of " + listed(unknown) + " is not known",
			"/commands/srvr of the AdminServer (port 8080) shows it there; docs/zookeeper.md has those that work"})
	}
	return found
}

func (s Session) finding() Finding {
	const check = "session timeout"
	switch {
	case s.Err != nil:
		return Finding{Fail, check, "", "no session: " + s.Err.Error(), "see the servers above"}
	case s.Granted != s.Asked:
		return Finding{Warn, check, "", fmt.Sprintf("the server grants %s instead of %s (zookeeper.session_timeout)",
			s.Granted, s.Asked),
			"set zookeeper.session_timeout to what the servers permit (minSessionTimeout to maxSessionTimeout), or " +
				"change that there"}
	case s.Base != s.Granted:
		return good(check, "", "%s, as asked; leases are based on zookeeper.min_session_timeout, %s", s.Granted, s.Base)
	}
	return good(check, "", "%s, as asked", s.Granted)
}

func (w Write) finding(session error) Finding {
	const check = "quorum"
	switch {
	case session != nil:
		return unknown(check, "", errors.New("there is no session"), "")
	case w.Absent:
		return unknown(check, "", w.Err, "start the daemon, or run 'zkelectd init'; then run this again")
	case w.Denied:
		return unknown(check, "", w.Err, "run this as a user who may read the credentials of the daemon; if you did, "+
			"see the permissions below")
	case w.Err != nil:
		return Finding{Fail, check, "", "a write failed: " + w.Err.Error(),
			"without a quorum no leader is elected, and none keeps its lease: see the servers above"}
	}
	return good(check, "", "a write was accepted in %s", round(w.Answered.Sub(w.Sent)))
}

// maxSkew is how far a clock may be off without a warning. Elections do not depend on it.
const maxSkew = 2 * time.Second

// clock compares the clock of this host with that of the server that has ordered the write.
func (w Write) clock() Finding {
	const check, advice = "clock", "elections do not depend on it, but logs, history and certificates do: look at " +
		"the time synchronization of this host and of the servers"
	if w.Err != nil {
		return unknown(check, "", errors.New("there was no write to compare with"), "")
	}
	// The server has taken the time between these two.
	ahead, behind := w.Sent.Sub(w.Time), w.Time.Sub(w.Answered)
	switch {
	case ahead > maxSkew:
		return Finding{Warn, check, "", fmt.Sprintf("the clock of this host is at least %s ahead of that of the "+
			"ZooKeeper server", round(ahead)), advice}
	case behind > maxSkew:
		return Finding{Warn, check, "", fmt.Sprintf("the clock of this host is at least %s behind that of the "+
			"ZooKeeper server", round(behind)), advice}
	}
	return good(check, "", "this host and the ZooKeeper server agree within %s", maxSkew)
}

// clocks compares the clocks of the members with that of the ZooKeeper server when they registered.
func (f Facts) clocks() Finding {
	const check = "members' clocks"
	var off []string
	for _, c := range f.Clocks {
		switch {
		case c.Ahead > maxSkew:
			off = append(off, fmt.Sprintf("%s %s ahead", c.Node, round(c.Ahead)))
		case c.Ahead < -maxSkew:
			off = append(off, fmt.Sprintf("%s %s behind", c.Node, round(-c.Ahead)))
		}
	}
	switch {
	case len(off) > 0:
		return Finding{Warn, check, "", "when they registered, these clocks differed from that of the " +
			"ZooKeeper server: " + listed(off),
			"look at the time synchronization there; the next registration measures it again"}
	case f.ClocksErr != nil:
		return unknown(check, "", f.ClocksErr, "")
	case len(f.Clocks) == 0:
		return unknown(check, "", errors.New("no member is known"), "")
	}
	return good(check, "", "when they registered, the clocks of %s agreed with that of the ZooKeeper server within %s",
		plural(len(f.Clocks), "member"), maxSkew)
}
