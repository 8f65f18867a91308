// Package systemd starts and stops a systemd unit over D-Bus. It asks only; what ends a unit with its lease is package guard.
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
	// Group is its control group, below the mount, whether it runs or not.
	Group string
	// Permit is the directory without which it does not start.
	Permit string
	// Socket is where its start asks whether this host leads.
	Socket string
	// BindsTo are the units that it does not outlive.
	BindsTo []string
	// State is its ActiveState.
	State string
}

// Idle tells that nothing of it runs or is about to.
func (u Unit) Idle() bool { return u.State == "inactive" || u.State == "failed" }

// open connects for as long as ctx lasts. Leaderships are rare: each begins with a connection of its own, so that a bus
// that was restarted meanwhile is none the worse.
func open(ctx context.Context) (*systemd.Conn, error) {
	c, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return nil, explain(ctx, "cannot reach systemd over D-Bus (is dbus.service running?)", err)
	}
	return c, nil
}

// explain makes an error of what D-Bus says, with what to do where that is known.
func explain(ctx context.Context, what string, err error) error {
	var refusal dbus.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: no answer: %w", what, context.Cause(ctx))
	case errors.As(err, &refusal) && refusal.Name == "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		errors.As(err, &refusal) && refusal.Name == "org.freedesktop.DBus.Error.AccessDenied":
		return fmt.Errorf("%s: systemd does not allow it to this user; allow it with the polkit rule of docs/systemd.md: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Want is what a unit has to have as EnvironmentFile=.
type Requirements struct {
	// Permit is the name of a file in the permit, which has to be there.
	Permit string
	// Fencing is the file with the fencing token, which is made after systemd has first looked for it.
	Fencing string
}

// Inspect finds out whether a unit can be leader-only work, and everything that keeps it from that.
func Inspect(ctx context.Context, name string, want Requirements) (Unit, error) {
	c, err := open(ctx)
	if err != nil {
		return Unit{}, err
	}
	defer c.Close()
	p, err := c.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return Unit{}, explain(ctx, "systemd does not describe "+name, err)
	}
	u := Unit{Name: name, State: get[string](p, "ActiveState"), BindsTo: get[[]string](p, "BindsTo")}
	switch state := get[string](p, "LoadState"); state {
	case "loaded":
	case "not-found":
		return u, fmt.Errorf("there is no unit %s (systemctl status %s)", name, name)
	case "masked":
		return u, fmt.Errorf("%s is masked (systemctl unmask %s)", name, name)
	default:
		return u, fmt.Errorf("%s is not loaded: %s (systemctl status %s)", name, state, name)
	}
	u.Group = group(get[string](p, "Slice"), name)
	return u, u.ties(p, want)
}

// ties finds what ties the unit to the leadership of this host: all of it is in the drop-in.
func (u *Unit) ties(p map[string]any, want Requirements) error {
	for i, command := range get[[][]any](p, "ExecConditionEx") {
		argv, _ := at(command, 1).([]string)
		flags, _ := at(command, 2).([]string)
		if i == 0 && len(argv) == 3 && path.Base(argv[0]) == "zkelectd" && argv[1] == "admit" && slices.Contains(flags, "privileged") {
			u.Socket = argv[2]
		}
	}
	if u.Socket == "" {
		return u.lacks("ExecCondition=+/usr/bin/zkelectd admit SOCKET, before any other ExecCondition=")
	}
	files := get[[][]any](p, "EnvironmentFiles")
	for _, f := range files {
		file, _ := at(f, 0).(string)
		if dir, name := path.Split(file); name == want.Permit && at(f, 1) == false {
			u.Permit = path.Clean(dir)
		}
		if path.Dir(file) == path.Dir(u.Socket) {
			return fmt.Errorf("%s has EnvironmentFile=%s, which zkelectd's user can write, so that this user could run programs as the unit's: "+
				"remove it (systemctl edit %s), and see the drop-in of docs/systemd.md", u.Name, file, u.Name)
		}
	}
	if u.Permit == "" {
		return u.lacks("EnvironmentFile= with " + want.Permit + " of zkelectd's permit, and without a \"-\"")
	}
	if !slices.ContainsFunc(get[[][]any](p, "Asserts"), func(a []any) bool {
		return at(a, 0) == "AssertPathExists" && at(a, 1) == false && at(a, 2) == false && at(a, 3) == u.Permit
	}) {
		return u.lacks("AssertPathExists=" + u.Permit)
	}
	if !slices.ContainsFunc(files, func(f []any) bool { return at(f, 0) == want.Fencing }) {
		return u.lacks("EnvironmentFile=-" + want.Fencing)
	}
	if len(u.BindsTo) == 0 {
		return u.lacks("BindsTo=zkelectd.service")
	}
	if kind := get[string](p, "Type"); kind == "oneshot" || get[bool](p, "RemainAfterExit") {
		return fmt.Errorf("%s is done when its processes are, and no work that goes on: Type=oneshot and RemainAfterExit=yes are not supported", u.Name)
	}
	return nil
}

func (u *Unit) lacks(what string) error {
	return fmt.Errorf("%s is not tied to this host's leadership: it lacks %s; install the drop-in of docs/systemd.md (systemctl edit %s)", u.Name, what, u.Name)
}

// group is the control group of a unit in a slice: a-b.slice is within a.slice.
func group(slice, name string) string {
	dir := "/"
	if slice != "" && slice != "-.slice" {
		parts := strings.Split(strings.TrimSuffix(slice, ".slice"), "-")
		for i := range parts {
			dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
		}
	}
	return path.Join(dir, name)
}

func get[T any](properties map[string]any, name string) T {
	v, _ := properties[name].(T)
	return v
}

func at(fields []any, i int) any {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// Start starts a unit and waits until it has started, in the sense of its Type=. It fails rather than undo a job, such as
// the stop of this service.
func Start(ctx context.Context, name string) error {
	result, err := job(ctx, "cannot start "+name, func(c *systemd.Conn, done chan<- string) (int, error) {
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
	_, err := job(ctx, "cannot stop "+name, func(c *systemd.Conn, done chan<- string) (int, error) {
		return c.StopUnitContext(ctx, name, "replace", done)
	})
	return err
}

func job(ctx context.Context, what string, begin func(*systemd.Conn, chan<- string) (int, error)) (string, error) {
	c, err := open(ctx)
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
		return "", fmt.Errorf("%s: not done in time: %w", what, ctx.Err())
	}
}

// Outcome says how a unit has ended, as in "exited with status 3"; "" if systemd does not tell.
func ExitStatus(ctx context.Context, name string) string {
	c, err := open(ctx)
	if err != nil {
		return ""
	}
	defer c.Close()
	p, err := c.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return ""
	}
	const exited = 1 // CLD_EXITED
	status := get[int32](p, "ExecMainStatus")
	switch {
	case get[uint64](p, "ExecMainExitTimestampMonotonic") == 0:
		return ""
	case get[int32](p, "ExecMainCode") == exited:
		return fmt.Sprintf("exited with status %d (%s)", status, get[string](p, "Result"))
	}
	return fmt.Sprintf("was killed by signal %d (%s)", status, get[string](p, "Result"))
}
