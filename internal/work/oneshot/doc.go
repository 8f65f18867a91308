// Package oneshot runs a job once per occasion, as the leader-only work of a group: it records runs in ZooKeeper, and connects the
// daemon with the process that starts the job. It does not elect, and it does not enforce the lease: the daemon and its guard do.
package oneshot
