// Package racetest reads in a process' log whether the race detector has found something. It is for tests.
package racetest

import (
	"slices"
	"strings"
)

// Found tells that a log has a report of a data race, but for the one that go-zookeeper v1.0.4 has of its own: at a reconnect
// it reads the last zxid while a first reply may set it.
func Found(log string) bool {
	reports := strings.Split(log, "WARNING: DATA RACE")
	return slices.ContainsFunc(reports[1:], func(report string) bool {
		text, _, _ := strings.Cut(report, "==================")
		return !strings.Contains(text, "zk.(*Conn).sendSetWatches")
	})
}
