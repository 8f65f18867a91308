package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/losses"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
)

// gameday are the flags of the command gameday, and what is known before the leader fails.
type gameday struct {
	yes      bool
	takeover time.Duration

	group group
	limit time.Duration // of what is promised and takeover
	err   io.Writer
	drillResult
}

// drillResult is the output of gameday.
type drillResult struct {
	result
	Group string `json:"group"`
	// Leader is who has failed, in Term.
	Leader string `json:"leader"`
	Term   int64  `json:"term"`
	// Promised is within what time the next leader starts its work, and Takeover is --takeover.
	Promised cluster.Duration `json:"promised"`
	Takeover cluster.Duration `json:"takeover"`
	Kept     bool             `json:"kept"`
	// Next is the next leader, empty if there is none. Took is how long it was from the failure until it was READY; nil if
	// that is not known.
	Next string            `json:"next,omitempty"`
	Took *cluster.Duration `json:"took,omitempty"`
}

func gamedayCommand(c *command) {
	var d gameday
	c.Use = "gameday"
	c.Short = "Practice a failure of the leader, and compare the history with what is promised"
	c.Long = `Gameday kills the daemon that leads on this host, after you have confirmed it, and compares
what the history then says with the time that 'zkelectd check' promises for the loss of a
daemon. The guard of the daemon ends the work and starts the daemon again.

It is refused unless this host leads, without another eligible member, and while the status
shows a problem, a pause or a handover, in this group or in another group or slot that the
daemon leads: they get another leader as well. In this group it must be READY within the
promised time plus --takeover.

The exit status is 0 if the promise was kept, 1 if not, and 3 if the drill was refused.`
	c.Args = cobra.NoArgs
	output := c.outputFlag()
	c.Flags().BoolVar(&d.yes, "yes", false, "do it without asking")
	durationFlag(c, &d.takeover, "takeover", 5*time.Second,
		"how long the work of the next leader may need until it is ready")
	c.check = func([]string) error {
		d.drillResult = drillResult{result: c.result(output), Takeover: cluster.Duration(d.takeover)}
		d.err = c.ErrOrStderr()
		if d.takeover <= 0 {
			return errors.New("--takeover must be more than 0s")
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		d.group, d.Group = g, g.name
		file := cmp.Or(configFile(c.Command), hostFile)
		if err := d.plan(ctx, file); err != nil {
			return err
		}
		if !d.yes {
			if err := d.confirm("the group's name", g.name, "--yes"); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return d.finish(&d.drillResult, d.run(ctx, file))
	}
}

// target is the daemon that a drill kills.
type target struct {
	pidfd int
	// question is about the group of the drill, and also are the other groups and slots that the daemon leads.
	question whatif.Question
	also     []string
}

// find looks at the groups and at this host, and returns the daemon that leads. It returns an error if there must be no
// drill. file is the configuration file of the daemon.
func (d *gameday) find(ctx context.Context, file string) (t target, err error) {
	q, err := d.group.submitter().Question(ctx)
	if err != nil {
		return t, err
	}
	t.question = q
	reasons := refusals(operator.WithForecast(status.Of(d.group.name, d.group.paths.Root, q.Snapshot), q),
		q.Snapshot.Control.Record.Pause)
	if m, found := q.Snapshot.Member(q.Snapshot.Current.Record.Incarnation); found && m.Node.Readable() {
		var others []string
		if t.also, others, err = d.alsoLed(ctx, m.Node.Record); err != nil {
			return t, err
		}
		reasons = append(reasons, others...)
	}
	if len(reasons) > 0 {
		return t, refuse("nothing was done: %s", strings.Join(reasons, "; "))
	}
	if t.pidfd, err = leadingDaemon(ctx, q.Snapshot, file); err != nil {
		return t, refuse("nothing was done: %w", err)
	}
	return t, nil
}

// plan prints what the drill will do. It returns an error if there must be no drill.
func (d *gameday) plan(ctx context.Context, file string) error {
	promise, err := d.promised()
	if err != nil {
		return err
	}
	t, err := d.find(ctx, file)
	if err != nil {
		return err
	}
	unix.Close(t.pidfd)
	q := t.question
	d.Leader, d.Term = q.Snapshot.Current.Record.Node, q.Snapshot.Current.Record.Term
	q.Change.Without = []string{d.Leader}
	d.say("This drill kills the daemon of %s (leader of %s in term %d); the guard ends the work and starts "+
		"the daemon again.",
		d.Leader, d.group.name, d.Term)
	if len(t.also) > 0 {
		d.say("That daemon leads these, too, and they get another leader as well: %s", strings.Join(t.also, ", "))
	}
	d.say("Promised: the next leader, by policy %s, starts its work within %s (%s).",
		whatif.Run(q).Leader.ID, promise.Time(), promise.Sum())
	return nil
}

// refusals returns why no leader may fail on purpose in a group.
func refusals(g status.Group, pause *cluster.Pause) (all []string) {
	if g.State != string(cluster.CurrentReady) || g.Next != "" {
		all = append(all, "there is no READY leader, or a handover is under way")
	}
	if pause != nil {
		all = append(all, "the group is paused: run "+cluster.InGroup("'zkelectd resume'", g.Name)+" first")
	}
	for _, p := range g.Problems {
		if !slices.Contains(g.Passing, p) {
			all = append(all, "solve this first: "+p)
		}
	}
	return all
}

// promised returns what the configuration promises for the loss of a daemon.
func (d *gameday) promised() (losses.Loss, error) {
	checked, err := checkedOf(config.Group{Name: d.group.name, Config: d.group.cfg}, false)
	if err != nil {
		return losses.Loss{}, err
	}
	promise := checked.Losses[slices.IndexFunc(checked.Losses,
		func(l losses.Loss) bool { return l.Kind == losses.Daemon })]
	if !promise.Survived() {
		return promise, refuse("nothing was done: the configuration does not survive this loss: %s", promise.Why)
	}
	d.Promised, d.limit = promise.Within, time.Duration(promise.Within)+d.takeover
	return promise, nil
}

// settleTime is how long the drill waits beyond what is promised, to show what happened instead.
const settleTime = 30 * time.Second

// run kills the daemon, if there still may be a drill, and shows what the history says of it.
func (d *gameday) run(ctx context.Context, file string) error {
	t, err := d.find(ctx, file)
	if err != nil {
		return err
	}
	defer unix.Close(t.pidfd)
	if now := t.question.Snapshot.Current.Record; now.Term != d.Term {
		return refuse("nothing was done: %s leads in term %d now: run this again", now.Node, now.Term)
	}
	began := time.Now()
	if err := unix.PidfdSendSignal(t.pidfd, unix.SIGKILL, nil, 0); err != nil {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	g := d.group
	next := nextTerm{notices: notices{w: d.err}, after: d.Term}
	limited, cancel := context.WithTimeout(ctx, 2*d.limit+settleTime)
	defer cancel()
	read := func(ctx context.Context, g group) (cluster.History, error) { return g.history(ctx, true) }
	err = follow(limited, g, began, read, &next)
	switch {
	case errors.Is(err, errDone):
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted: see " + cluster.InGroup("'zkelectd history'", g.name))
	default:
		d.say("NOT KEPT: the history has no new leader after %s", 2*d.limit+settleTime)
		return exitError{statusNo, nil}
	}
	d.Next, d.Took = next.found.Node, next.tookSince(began)
	if !d.json {
		if err := printTerms(d.out, []cluster.PastTerm{*next.found}, "table", true); err != nil {
			return err
		}
	}
	word := "NOT KEPT"
	if d.Kept = d.Took != nil && time.Duration(*d.Took) <= d.limit; d.Kept {
		word = "kept"
	}
	d.say("%s: %s from the failure until READY; promised were %s, and --takeover %s",
		word, formatDuration(d.Took), time.Duration(d.Promised), d.takeover)
	if !d.Kept {
		return exitError{statusNo, nil}
	}
	return nil
}

// nextTerm waits for a READY leader after a term.
type nextTerm struct {
	notices
	after int64
	found *cluster.PastTerm
}

func (n *nextTerm) show(h cluster.History) error {
	first := true
	for _, t := range h.Terms {
		if t.Term <= n.after {
			continue
		}
		if seen, _ := t.Cause.InPolicy(); first && seen != cluster.CauseFailure {
			return fmt.Errorf("the drill has measured nothing: as it began, leadership moved in term %d (%s): %s",
				t.Term, t.Cause, t.Reason)
		}
		if first = false; t.Outcome == string(cluster.CurrentReady) {
			n.found = &t
			return errDone
		}
	}
	return nil
}

// tookSince returns the time from a failure until the new leader was READY, as far as the clocks of this host and the
// elector's agree; nil if no elector has measured it.
func (n *nextTerm) tookSince(failure time.Time) *cluster.Duration {
	if n.found.ToReady == nil {
		return nil
	}
	took := cluster.Duration(max(0, n.found.Time.Add(time.Duration(*n.found.ToReady)).Sub(failure)))
	return &took
}

// leadingDaemon returns the daemon that runs with a configuration file on this host, or an error unless it leads. The
// kernel says which process that is: the one that listens on the daemon's socket. No record in ZooKeeper can make a
// drill kill another one.
func leadingDaemon(ctx context.Context, s cluster.Snapshot, file string) (pidfd int, err error) {
	pid, err := listenerAt(ctx, file)
	if err != nil {
		return 0, err
	}
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return 0, os.NewSyscallError("pidfd_open", err)
	}
	defer func() {
		if err != nil {
			unix.Close(pidfd)
		}
	}()
	again, err := listenerAt(ctx, file) // the pid may have been given to another process before the pidfd held it
	if err == nil && again != pid {
		err = fmt.Errorf("the daemon, process %d, has ended meanwhile", pid)
	}
	if err != nil {
		return 0, err
	}
	stat, err := procinfo.ReadStat(pid)
	if err != nil {
		return 0, err
	}
	m, found := s.Member(s.Current.Record.Incarnation)
	if !found || !m.Node.Readable() {
		return 0, fmt.Errorf("the record of the leader %s cannot be read", s.Current.Record.Node)
	}
	guard, absent, err := guardOf(m.Node.Record)
	switch {
	case err != nil:
		return 0, err
	case absent != "":
		return 0, fmt.Errorf("%s leads, and this drill runs on its host: %s", m.ID, absent)
	case guard != stat.Parent:
		return 0, fmt.Errorf("%s leads with the guard %d, but process %d, the daemon that runs with %s here, "+
			"has the guard %d",
			m.ID, guard, pid, file, stat.Parent)
	}
	return pidfd, nil
}

// listenerAt returns the process that listens on the socket of the daemon with a configuration file.
func listenerAt(ctx context.Context, file string) (pid int, err error) {
	err = atDaemon(file, func(socket string) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		held, err := conn.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		defer held.Close()
		peer, err := unix.GetsockoptUcred(int(held.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return os.NewSyscallError("getsockopt(SO_PEERCRED)", err)
		}
		if pid = int(peer.Pid); pid == 0 { // it is in a PID namespace that this process cannot see
			return fmt.Errorf("the process that listens on %s is not visible here: run this in its container", socket)
		}
		return nil
	})
	return pid, err
}
