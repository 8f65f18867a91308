package status

import (
	"errors"
	"fmt"
	"time"
)

// CheckInterval is how often a daemon reads from ZooKeeper if nothing happens.
const CheckInterval = 10 * time.Second

// PublishInterval returns how often a loop publishes its view if nothing happens.
func PublishInterval(session time.Duration) time.Duration { return min(session/4, 5*time.Second) }

// The checks below return nil for yes and otherwise the reason for no. What is stale or unknown is no.

// CheckLoop returns an error if the event loop is stuck: it has not published for two intervals. Between sessions there is no
// loop, and nothing that it could be late for.
func (d Daemon) CheckLoop() error {
	if !d.Loop {
		return nil
	}
	age, limit := time.Duration(d.Age), max(time.Second, 2*PublishInterval(time.Duration(d.SessionTimeout)))
	if d.PublishedAt == 0 || age < 0 || age > limit {
		return fmt.Errorf("the event loop has been stuck for %s, more than %s", age.Round(time.Millisecond), limit)
	}
	return nil
}

// CheckRegistered returns an error unless the daemon is a member of the group.
func (d Daemon) CheckRegistered() error {
	switch err := d.CheckLoop(); {
	case err != nil:
		return err
	case !d.takesPart():
		return d.membershipError()
	case !d.Session:
		return errors.New("there is no session")
	case d.Phase == "ended":
		return errors.New("the session is over")
	case d.Incarnation == "":
		return errors.New("this daemon is not registered")
	}
	return nil
}

func (d Daemon) membershipError() error {
	text := "this host is not a member of the group, but " + d.Membership
	if d.MembershipReason != "" {
		text += ": " + d.MembershipReason
	}
	return errors.New(text)
}

// CheckReady returns an error unless the daemon is a member and its knowledge of the group is fresh.
func (d Daemon) CheckReady() error {
	limit := CheckInterval + time.Duration(d.SessionTimeout)
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case !d.Connected:
		return errors.New("no ZooKeeper server is connected")
	case d.SnapshotAt == 0:
		return errors.New("the group has not been read yet")
	case d.RespondedAt == 0 || time.Duration(d.LastResponseAge) > limit:
		return fmt.Errorf("ZooKeeper has not answered for %s, more than %s", time.Duration(d.LastResponseAge).Round(time.Millisecond), limit)
	}
	return nil
}

// CheckHealthy returns an error unless the daemon is a member and its host passes its own health probe.
func (d Daemon) CheckHealthy() error {
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case d.Unhealthy != "":
		return errors.New("this host is unhealthy: " + d.Unhealthy)
	}
	return nil
}

// CheckReplica returns an error unless the daemon is a healthy standby and its knowledge of the group is fresh.
func (d Daemon) CheckReplica() error {
	switch err := d.CheckReady(); {
	case err != nil:
		return err
	case d.Phase != "standby":
		return errors.New("this daemon is " + d.Phase + ", not a standby")
	}
	return d.CheckHealthy()
}

// CheckLeader returns an error unless the daemon is the READY leader and its lease is valid. Only the lease is proof; a
// connection is not.
func (d Daemon) CheckLeader() error {
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case d.Phase != "leading":
		return errors.New("this daemon is " + d.Phase + ", not leading")
	case d.LeaseRemaining <= 0:
		return errors.New("the lease is over")
	}
	return nil
}

// Leads reports whether the daemon is the READY leader and its lease is valid.
func (d Daemon) Leads() bool { return d.CheckLeader() == nil }
