// Package systemd inspects, starts and stops a systemd unit over D-Bus. It only sends requests to systemd; package
// guard kills the unit when the lease ends.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Unit is a unit as systemd knows it.
type Unit struct {
	Name string
	// Group is the path of its control group, relative to the mount point; the group exists only while the unit runs.
	Group string
	// Permit is the directory that must exist for the unit to start.
	Permit string
	// Socket is the path of the socket at which its start asks whether this host leads.
	Socket string
	// BindsTo are the units with which it stops.
	BindsTo []string
	// State is the unit's ActiveState.
	State string
}

// Idle reports whether no process of the unit runs or is about to.
func (u Unit) Idle() bool { return u.State == "inactive" || u.State == "failed" }

// connect connects to systemd; the connection ends with ctx. Each operation uses a new connection, as operations are
// rare and the bus may have been restarted in between.
func connect(ctx context.Context) (*systemd.Conn, error) {
	c, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return nil, explain(ctx, "cannot reach systemd over D-Bus (is dbus.service running?)", err)
	}
	return c, nil
}

// explain wraps an error from D-Bus and adds what to do, if that is known.
func explain(ctx context.Context, what string, err error) error {
	var refusal dbus.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: no answer: %w", what, context.Cause(ctx))
	case errors.As(err, &refusal) && refusal.Name == "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		errors.As(err, &refusal) && refusal.Name == "org.freedesktop.DBus.Error.AccessDenied":
		return fmt.Errorf("%s: systemd does not allow this user to do it; install the polkit rule of "+
			"docs/systemd.md: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Inspect returns a unit, and an error if the unit cannot be leader-only work: it must name two files with
// EnvironmentFile=, one with the name permit in its permit, without which it does not start, and the path fencing
// with the fencing token, which need not exist.
func Inspect(ctx context.Context, name, permit, fencing string) (Unit, error) {
	c, err := connect(ctx)
	if err != nil {
		return Unit{}, err
	}
	defer c.Close()
	p, err := c.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return Unit{}, explain(ctx, "cannot read the properties of "+name+" from systemd", err)
	}
	u := Unit{Name: name, State: property[string](p, "ActiveState"), BindsTo: property[[]string](p, "BindsTo")}
	switch state := property[string](p, "LoadState"); state {
	case "loaded":
	case "not-found":
		return u, fmt.Errorf("there is no unit %s (systemctl status %s)", name, name)
	case "masked":
		return u, fmt.Errorf("%s is masked (systemctl unmask %s)", name, name)
	default:
		return u, fmt.Errorf("%s is not loaded: %s (systemctl status %s)", name, state, name)
	}
	u.Group = cgroupPath(property[string](p, "Slice"), name)
	return u, u.readDropIn(p, permit, fencing)
}

// readDropIn reads the settings of the drop-in, which tie the unit to the leadership of this host, and returns an error
// if one is missing.
func (u *Unit) readDropIn(p map[string]any, permit, fencing string) error {
	for i, command := range property[[][]any](p, "ExecConditionEx") {
		argv, _ := field(command, 1).([]string)
		flags, _ := field(command, 2).([]string)
		if i == 0 && len(argv) == 3 && path.Base(argv[0]) == "zkelectd" && argv[1] == "admit" &&
			slices.Contains(flags, "privileged") {
			u.Socket = argv[2]
		}
	}
	if u.Socket == "" {
		return u.missing("ExecCondition=+/usr/bin/zkelectd admit SOCKET, before any other ExecCondition=")
	}
	files := property[[][]any](p, "EnvironmentFiles")
	for _, f := range files {
		file, _ := field(f, 0).(string)
		if dir, name := path.Split(file); name == permit && field(f, 1) == false {
			u.Permit = path.Clean(dir)
		}
		if path.Dir(file) == path.Dir(u.Socket) {
			return fmt.Errorf("%s has EnvironmentFile=%s, which zkelectd's user can write, so zkelectd's user could "+
				"run programs as the unit's user: "+
				"remove it (systemctl edit %s), and see the drop-in of docs/systemd.md", u.Name, file, u.Name)
		}
	}
	if u.Permit == "" {
		return u.missing("EnvironmentFile= with " + permit + " of zkelectd's permit, and without \"-\"")
	}
	if !slices.ContainsFunc(property[[][]any](p, "Asserts"), func(a []any) bool {
		return field(a, 0) == "AssertPathExists" && field(a, 1) == false && field(a, 2) == false && field(a, 3) == u.Permit
	}) {
		return u.missing("AssertPathExists=" + u.Permit)
	}
	if !slices.ContainsFunc(files, func(f []any) bool { return field(f, 0) == fencing }) {
		return u.missing("EnvironmentFile=-" + fencing)
	}
	if len(u.BindsTo) == 0 {
		return u.missing("BindsTo=zkelectd.service")
	}
	if kind := property[string](p, "Type"); kind == "oneshot" || property[bool](p, "RemainAfterExit") {
		return fmt.Errorf("%s is not a long-running service: Type=oneshot and RemainAfterExit=yes are not supported", u.Name)
	}
	return nil
}

// missing returns the error for a setting of the drop-in that the unit lacks.
func (u *Unit) missing(what string) error {
	return fmt.Errorf("%s is not tied to this host's leadership: it lacks %s; install the drop-in of docs/systemd.md "+
		"(systemctl edit %s)", u.Name, what, u.Name)
}

// cgroupPath returns the control group of a unit in a slice; a-b.slice is within a.slice.
func cgroupPath(slice, name string) string {
	dir := "/"
	if slice != "" && slice != "-.slice" {
		parts := strings.Split(strings.TrimSuffix(slice, ".slice"), "-")
		for i := range parts {
			dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
		}
	}
	return path.Join(dir, name)
}

// property returns a unit property; the zero value if it does not exist or has another type.
func property[T any](properties map[string]any, name string) T {
	v, _ := properties[name].(T)
	return v
}

// field returns the i-th field of a D-Bus structure; nil if it has fewer.
func field(fields []any, i int) any {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// Start starts a unit and waits until it has started, in the sense of its Type=. It fails rather than cancel a queued
// job, such as the stop of zkelectd's own service.
func Start(ctx context.Context, name string) error {
	result, err := runJob(ctx, "cannot start "+name, func(c *systemd.Conn, done chan<- string) (int, error) {
		return c.StartUnitContext(ctx, name, "fail", done)
	})
	if err != nil {
		return err
	}
	if result != "done" {
		return fmt.Errorf("%s did not start: its job is %q (journalctl -u %s)", name, result, name)
	}
	return nil
}

// Stop stops a unit and waits until it has stopped.
func Stop(ctx context.Context, name string) error {
	_, err := runJob(ctx, "cannot stop "+name, func(c *systemd.Conn, done chan<- string) (int, error) {
		return c.StopUnitContext(ctx, name, "replace", done)
	})
	return err
}

// runJob queues a job and waits for its result.
func runJob(ctx context.Context, what string, begin func(*systemd.Conn, chan<- string) (int, error)) (string, error) {
	c, err := connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	done := make(chan string, 1)
	if _, err := begin(c, done); err != nil {
		return "", explain(ctx, what, err)
	}
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s: timed out: %w", what, ctx.Err())
	}
}

// UsesWatchdog reports whether systemd uses a watchdog device itself (RuntimeWatchdogSec=).
func UsesWatchdog(ctx context.Context) (bool, error) {
	c, err := connect(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	text, err := c.GetManagerProperty("RuntimeWatchdogUSec") // as in "@t 10000000"
	if err != nil {
		return false, explain(ctx, "cannot read RuntimeWatchdogUSec from systemd", err)
	}
	return text != "@t 0", nil // the largest number stands for the timeout that the device has
}

// ExitStatus describes how the unit's main process ended, as in "exited with status 3"; empty if systemd does not know
// or does not answer.
func ExitStatus(ctx context.Context, name string) string {
	c, err := connect(ctx)
	if err != nil {
		return ""
	}
	defer c.Close()
	p, err := c.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return ""
	}
	const exited = 1 // CLD_EXITED
	status := property[int32](p, "ExecMainStatus")
	switch {
	case property[uint64](p, "ExecMainExitTimestampMonotonic") == 0:
		return ""
	case property[int32](p, "ExecMainCode") == exited:
		return fmt.Sprintf("exited with status %d (%s)", status, property[string](p, "Result"))
	}
	return fmt.Sprintf("was killed by signal %d (%s)", status, property[string](p, "Result"))
}
