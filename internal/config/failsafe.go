package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"zkelectd/internal/cluster"
)

// Failsafe configures whether a leader works on while ZooKeeper is away.
type Failsafe struct {
	Enabled bool `yaml:"enabled" reload:"yes" doc:"Whether a leader that ZooKeeper does not answer works on as long as all other members promise to let nobody take over. Part of the policy; each host takes part only if its own configuration says so, too. See docs/failsafe.md."`
	// Max is how long it does so at most; 0 for no limit.
	Max time.Duration `yaml:"max" reload:"yes" doc:"How long such a leader works on at most, from the last write that ZooKeeper has confirmed. 0s for no limit. Part of the policy."`
	// Listen is where this host answers the other members; empty for http.listen.
	Listen string `yaml:"listen" scope:"host" doc:"The address host:port at which this host answers the other members in failsafe mode, as they reach it: not 0.0.0.0. Default: http.listen, which can't be used if it is a socket or has http.web_config."`
}

const (
	failsafeEnabled = "failsafe.enabled"
	failsafeMax     = "failsafe.max"
	failsafeListen  = "failsafe.listen"
)

// FailsafeAddress returns where this host answers the other members in failsafe mode.
func (c Config) FailsafeAddress() string { return cmp.Or(c.Failsafe.Listen, c.HTTP.Public(false)) }

// CheckFailsafeStop returns an error if the work may take longer to stop than a leader in failsafe mode leaves it, with
// a lease that is based on a session timeout.
func (c Config) CheckFailsafeStop(session time.Duration) error {
	lease, stop := c.Lease(session), c.Child.StopTimeout
	limit := cluster.FailsafeGrace(lease).Truncate(10 * time.Millisecond)
	if !c.Failsafe.Enabled || stop <= limit {
		return nil
	}
	longer := fmt.Sprintf("election.lease to %s", 3*stop)
	if c.Election.Lease == 0 {
		need := time.Duration(float64(stop) * 3 / 0.45).Round(100 * time.Millisecond)
		longer = fmt.Sprintf("zookeeper.session_timeout (and the server's maxSessionTimeout) to %s",
			need+100*time.Millisecond)
	}
	return fmt.Errorf("%s is longer than the %s that failsafe mode leaves of the lease of %s: shorten it, or raise %s",
		stop, limit, lease, longer)
}

func (c *Config) checkFailsafe(report func(string, string, ...any)) {
	f := c.Failsafe
	switch {
	case f.Max > cluster.MaxFailsafe:
		report(failsafeMax, "%s is more than %s", f.Max, time.Duration(cluster.MaxFailsafe))
	case f.Max > 0 && !f.Enabled:
		report(failsafeMax, "has no effect: set failsafe.enabled as well")
	}
	if err := checkReachable(f.Listen); f.Listen != "" && err != nil {
		report(failsafeListen, "%q %v", f.Listen, err)
	}
	if f.Enabled && c.Slots.Enabled() {
		report(failsafeEnabled, "is not possible in a group with slots (slots.count): a new epoch does not wait for "+
			"what members have promised")
	}
	if err := c.CheckFailsafeStop(c.ZooKeeper.LeaseBase(c.ZooKeeper.SessionTimeout)); err != nil {
		report("child.stop_timeout", "%v", err)
	}
}

// checkReachable returns an error unless other hosts can connect to an address, as far as that can be seen.
func checkReachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, failed := strconv.Atoi(port); err != nil || failed != nil || n < 1 || n > 65535 {
		return errors.New("is not host:port")
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return errors.New("does not say how the other members reach this host: name its address, as in 192.0.2.1:" + port)
	}
	return nil
}

// checkFailsafeHost calls report with what a daemon of the group lacks for failsafe mode. Commands need none of that:
// they may read a file that has the policy alone.
func (c Config) checkFailsafeHost(report func(key, reason string)) {
	if !c.Failsafe.Enabled {
		return
	}
	if c.ZooKeeper.ACL == aclOpen {
		report("zookeeper.acl", "is open, but failsafe.enabled needs a secret that only members can read: set "+
			"zookeeper.auth.file and zookeeper.acl: private")
	}
	const alone = "is not set, and failsafe.enabled needs an address at which the other members reach this host: "
	if listen := c.HTTP.Listen; c.Failsafe.Listen == "" {
		switch err := checkReachable(listen); {
		case listen == "", listen == ListenNone:
			report(failsafeListen, alone+"set it, or http.listen")
		case err != nil:
			report(failsafeListen, fmt.Sprintf(alone+"http.listen, %q, %v", listen, err))
		case c.HTTP.WebConfig != "":
			report(failsafeListen, alone+"with http.web_config it can't be that of http.listen")
		}
	}
}
