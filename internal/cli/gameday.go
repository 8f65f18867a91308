package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// The drills.
const (
	drillDaemon  = "daemon"
	drillNetwork = "network"
)

// gameday are the flags of the command gameday, and what is known before the leader fails.
type gameday struct {
	yes, despite  bool
	cut, takeover time.Duration

	group   group
	promise losses.Loss
	limit   time.Duration // of the promise and takeover
	fail    func(context.Context) error
	err     io.Writer
	drillResult
}

// drillResult is the output of gameday.
type drillResult struct {
	result
	Group string `json:"group"`
	Drill string `json:"drill"`
	// Leader is who has failed, in Term.
	Leader string `json:"leader"`
	Term   int64  `json:"term"`
	// Promised is within what time the next leader starts its work, and Takeover is --takeover.
	Promised cluster.Duration `json:"promised"`
	Takeover cluster.Duration `json:"takeover"`
	Kept     bool             `json:"kept"`
	// Next is the next leader, of the term NextTerm; empty if there is none. Took is how long it was from the failure until
	// it was READY; nil if that is not known.
	Next     string            `json:"next,omitempty"`
	NextTerm int64             `json:"next_term,omitempty"`
	Took     *cluster.Duration `json:"took,omitempty"`
}

func gamedayCommand(c *command) {
	var d gameday
	c.Use = "gameday DRILL"
	c.Short = "Practice a failure of the leader, and compare the history with what is promised"
	c.Long = `Gameday has the leader on this host fail on purpose, after you have confirmed it, and
compares what the history then says with the times that 'zkelectd check' promises for the
loss. The drills:

  daemon   kills the daemon of this configuration; its guard starts it again
  network  cuts this host off from the ZooKeeper servers for --for (root, nft)

It is refused unless this host leads, without another eligible member, while the group is
paused, during a handover, and while the status shows a problem that needs somebody to act.
Another leader must be READY within the promised time plus --takeover.

The exit status is 0 if the promise was kept, 1 if not, and 3 if the drill was refused.`
	c.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
	c.ValidArgs = []string{drillDaemon, drillNetwork}
	output := c.outputFlag()
	c.Flags().BoolVar(&d.yes, "yes", false, "do it without asking")
	c.Flags().BoolVar(&d.despite, "despite-problems", false, "do it although the status shows a problem")
	durationFlag(c, &d.cut, "for", 0,
		"with network: how long the path is cut; at most 10m (default: as long as promised, with --takeover)")
	durationFlag(c, &d.takeover, "takeover", 5*time.Second,
		"how long the work of the next leader may need until it is ready")
	c.check = func(args []string) error {
		d.drillResult = drillResult{result: c.result(output), Drill: args[0], Takeover: cluster.Duration(d.takeover)}
		d.err = c.ErrOrStderr()
		switch {
		case c.Flags().Changed("for") && d.Drill != drillNetwork:
			return errors.New("--for is for the drill network only")
		case c.Flags().Changed("for") && (d.cut < time.Second || d.cut > 10*time.Minute):
			return errors.New("--for must be from 1s to 10m")
		case d.takeover <= 0:
			return errors.New("--takeover must be more than 0s")
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		d.group, d.Group = g, g.name
		if err := d.plan(ctx, cmp.Or(configFile(c.Command), hostFile)); err != nil {
			return err
		}
		if !d.yes {
			if err := d.confirm("the group's name", g.name, "--yes"); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return d.finish(&d.drillResult, d.run(ctx))
	}
}

// plan looks at the group and at this host, and prints what the drill will do. It returns an error if there must be
// none. file is the configuration file of the daemon.
func (d *gameday) plan(ctx context.Context, file string) error {
	q, err := d.group.submitter().Question(ctx)
	if err != nil {
		return err
	}
	view := operator.WithForecast(status.Of(d.group.name, d.group.paths.Root, q.Snapshot), q)
	reasons := refusals(view)
	problems := slices.DeleteFunc(view.Problems, func(p string) bool { return slices.Contains(view.Passing, p) })
	if len(problems) > 0 && !d.despite {
		reasons = append(reasons, "solve these problems, or add --despite-problems: "+strings.Join(problems, "; "))
	}
	if len(reasons) > 0 {
		return refuse("nothing was done: %s", strings.Join(reasons, "; "))
	}
	if err := d.promised(); err != nil {
		return err
	}
	d.Leader, d.Term = view.Leader, view.Term
	leading, err := leadingDaemon(ctx, q.Snapshot, file)
	if err != nil {
		return refuse("nothing was done: %w", err)
	}
	d.fail = leading.kill
	does := "kills the daemon of %s; the guard ends the work and starts the daemon again"
	if d.Drill == drillNetwork {
		cut, err := newNetworkCut(ctx, d.group.cfg.ZooKeeper.Servers)
		if err != nil {
			return refuse("nothing was done: %w", err)
		}
		d.fail = func(ctx context.Context) error { return cut.hold(ctx, d.cut) }
		does = "cuts the host of %s off from the ZooKeeper servers for " + d.cut.String() +
			"; to undo that by hand: " + undoCut
	}
	leader := fmt.Sprintf("%s (leader of %s in term %d)", d.Leader, d.group.name, d.Term)
	d.say("This drill "+does+".", leader)
	q.Change.Without = []string{d.Leader}
	d.say("Promised: the next leader, by policy %s, starts its work within %s (%s).",
		whatif.Run(q).Leader.ID, d.promise.Time(), d.promise.Sum())
	return nil
}

// refusals returns why no leader may fail on purpose in a group.
func refusals(g status.Group) []string {
	var all []string
	switch {
	case g.State != string(cluster.CurrentReady):
		all = append(all, "there is no READY leader")
	case g.Next != "":
		all = append(all, "a handover is under way, to "+g.Next)
	case !slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Node != g.Leader && m.IsEligible() }):
		all = append(all, "no other member is eligible, so nobody could take over from "+g.Leader)
	}
	for _, r := range g.Requests {
		if strings.HasSuffix(r.Kind, "pause") {
			all = append(all, "the group is paused: run "+cluster.InGroup("'zkelectd resume'", g.Name)+" first")
		}
	}
	return all
}

// promised finds what the configuration promises for the loss.
func (d *gameday) promised() error {
	kind := map[string]losses.Kind{drillDaemon: losses.Daemon, drillNetwork: losses.Partition}[d.Drill]
	checked, err := checkedOf(config.Group{Name: d.group.name, Config: d.group.cfg}, false)
	if err != nil {
		return err
	}
	for _, l := range checked.Losses {
		if l.Kind == kind {
			d.promise = l
		}
	}
	if !d.promise.Survived() {
		return refuse("nothing was done: the configuration does not survive this loss: %s", d.promise.Why)
	}
	d.Promised = d.promise.Within
	d.limit = time.Duration(d.promise.Within) + d.takeover
	d.cut = cmp.Or(d.cut, d.limit)
	return nil
}

// settleTime is how long the drill waits beyond what is promised, to show what happened instead.
const settleTime = 30 * time.Second

// run has the leader fail, and shows what the history says of it.
func (d *gameday) run(ctx context.Context) error {
	began := time.Now()
	if err := d.fail(ctx); err != nil {
		return err
	}
	g := d.group
	next := nextTerm{notices: notices{w: d.err}, after: d.Term, ends: time.Now().Add(2*d.limit + settleTime)}
	read := func(ctx context.Context, g group) (cluster.History, error) { return g.history(ctx, true) }
	if err := follow(ctx, g, began, read, &next); !errors.Is(err, errDone) { // the session may have ended with the cut
		return cmp.Or(err, errors.New("interrupted: see "+cluster.InGroup("'zkelectd history'", d.group.name)))
	}
	if next.found == nil {
		d.say("NOT KEPT: the history has no new leader after %s", 2*d.limit+settleTime)
		return exitError{statusNo, nil}
	}
	d.Next, d.NextTerm, d.Took = next.found.Node, next.found.Term, next.tookSince(began)
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
		word, formatDuration(d.Took), d.promise.Time(), d.takeover)
	if !d.Kept {
		return exitError{statusNo, nil}
	}
	return nil
}

// nextTerm waits for a READY leader after a term.
type nextTerm struct {
	notices
	after int64
	ends  time.Time
	found *cluster.PastTerm
}

func (n *nextTerm) show(h cluster.History) error {
	for _, t := range h.Terms {
		if t.Term > n.after && t.Outcome == string(cluster.CurrentReady) {
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

func (n *nextTerm) refresh() error {
	if time.Now().After(n.ends) {
		return errDone
	}
	return nil
}

// localDaemon is the daemon that runs with a configuration file on this host. The kernel says which process that is:
// the one that listens on the daemon's socket. No record in ZooKeeper can make a drill kill another one.
type localDaemon struct{ file string }

// leadingDaemon returns the daemon with a configuration file, or an error unless it leads.
func leadingDaemon(ctx context.Context, s cluster.Snapshot, file string) (localDaemon, error) {
	d := localDaemon{file}
	pid, err := d.pid(ctx)
	if err != nil {
		return d, err
	}
	stat, err := procinfo.ReadStat(pid)
	if err != nil {
		return d, err
	}
	m, found := s.Member(s.Current.Record.Incarnation)
	if !found || !m.Node.Readable() {
		return d, fmt.Errorf("the record of the leader %s cannot be read", s.Current.Record.Node)
	}
	guard, absent, err := guardOf(m.Node.Record)
	switch {
	case err != nil:
		return d, err
	case absent != "":
		return d, fmt.Errorf("%s leads, and this drill runs on its host: %s", m.ID, absent)
	case guard != stat.Parent:
		return d, fmt.Errorf("%s leads with the guard %d, but process %d, the daemon that runs with %s here, has the guard %d",
			m.ID, guard, pid, file, stat.Parent)
	}
	return d, nil
}

// pid returns the process that listens on the daemon's socket.
func (d localDaemon) pid(ctx context.Context) (pid int, err error) {
	err = atDaemon(d.file, func(socket string) error {
		pid, err = listenerOf(ctx, socket)
		if err == nil && pid == 0 {
			err = fmt.Errorf("the process that listens on %s is not visible here: run this in its container", socket)
		}
		return err
	})
	return pid, err
}

// listenerOf returns the process that listens on a socket; 0 if it is in a PID namespace that this process cannot see.
func listenerOf(ctx context.Context, socket string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	peer, err := unix.GetsockoptUcred(int(file.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", err)
	}
	return int(peer.Pid), nil
}

// kill kills the daemon. It is asked for again once the kernel holds the process, in case its pid was given to
// another one.
func (d localDaemon) kill(ctx context.Context) error {
	pid, err := d.pid(ctx)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	again, err := d.pid(ctx)
	if err == nil && again != pid {
		err = fmt.Errorf("the daemon, process %d, has ended meanwhile", pid)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

// cutTable is the table of nftables with which the path to the servers is cut. Nothing else is in it.
const cutTable = "zkelectd_gameday"

// undoCut is the command that removes the rules. undoCutRules, as input of 'nft -f -', also succeeds if there are none.
const (
	undoCut      = "nft delete table inet " + cutTable
	undoCutRules = "add table inet " + cutTable + "\ndelete table inet " + cutTable + "\n"
)

// cutRules returns the rules that cut the path to some servers, in both directions, as input of 'nft -f -'.
func cutRules(servers []netip.AddrPort) string {
	var out, in strings.Builder
	for _, s := range servers {
		family := "ip"
		if s.Addr().Unmap().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&out, "\t\t%s daddr %s tcp dport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
		fmt.Fprintf(&in, "\t\t%s saddr %s tcp sport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
	}
	return fmt.Sprintf("table inet %s {\n\tchain to_servers {\n\t\ttype filter hook output priority 0;\n%s\t}\n"+
		"\tchain from_servers {\n\t\ttype filter hook input priority 0;\n%s\t}\n}\n", cutTable, &out, &in)
}

// networkCut cuts this host's path to the ZooKeeper servers.
type networkCut struct {
	rules    string
	watchdog *exec.Cmd // removes the rules if this process does not
}

// undoMargin is how long after the planned end the watchdog of a cut removes it.
const undoMargin = 5 * time.Second

// newNetworkCut returns the cut for the servers of a configuration.
func newNetworkCut(ctx context.Context, servers []string) (*networkCut, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, fmt.Errorf("the drill network needs nft, as in the package nftables: %w", err)
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	var all []netip.AddrPort
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", server, err)
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, ip := range found {
			all = append(all, netip.AddrPortFrom(ip, uint16(number)))
		}
	}
	return &networkCut{rules: cutRules(all)}, nil
}

// hold cuts the path for d, or until ctx ends.
func (c *networkCut) hold(ctx context.Context, d time.Duration) error {
	if err := c.begin(d); err != nil {
		return err
	}
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	return c.end()
}

// begin cuts the path. Whatever becomes of this process, it is restored after d and a margin.
func (c *networkCut) begin(d time.Duration) error {
	seconds := strconv.FormatFloat((d + undoMargin).Seconds(), 'f', 3, 64)
	c.watchdog = exec.Command("sh", "-c", "sleep "+seconds+"; "+undoCut+" 2>/dev/null")
	c.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C or the end of the terminal does not end it
	if err := c.watchdog.Start(); err != nil {
		return fmt.Errorf("cannot start the process that undoes the cut, so nothing was cut: %w", err)
	}
	if err := nft(c.rules, "-f", "-"); err != nil {
		c.stopWatchdog()
		return fmt.Errorf("nothing was cut: %w", err)
	}
	return nil
}

// end restores the path. It may be called again.
func (c *networkCut) end() error {
	if c.watchdog == nil {
		return nil
	}
	if err := nft(undoCutRules, "-f", "-"); err != nil {
		return fmt.Errorf("the path to the servers may still be cut: run '%s' (a process does so in a few seconds): %w", undoCut, err)
	}
	c.stopWatchdog()
	return nil
}

func (c *networkCut) stopWatchdog() {
	_ = syscall.Kill(-c.watchdog.Process.Pid, syscall.SIGKILL) // its own process group; it may have ended
	_ = c.watchdog.Wait()
	c.watchdog = nil
}

// nft runs nft with an input.
func nft(input string, args ...string) error {
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("nft %s: %s", strings.Join(args, " "), bytes.TrimSpace(out))
	}
	return err
}
