package testhelper

import (
	"slices"
	"strings"
)

// HasRace reports whether a log contains a report of a data race. It ignores the one in go-zookeeper v1.0.4, which reads the
// last zxid at a reconnect while a first reply may set it.
func HasRace(log string) bool {
	reports := strings.Split(log, "WARNING: DATA RACE")
	return slices.ContainsFunc(reports[1:], func(report string) bool {
		text, _, _ := strings.Cut(report, "==================")
		return !strings.Contains(text, "zk.(*Conn).sendSetWatches")
	})
}
