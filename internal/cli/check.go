package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/losses"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/secretfile"
	"zkelectd/internal/work/fencer"
	"zkelectd/internal/zk"
)

func checkCommand(c *command) {
	var offline, printed bool
	var name string
	output := c.outputFlag()
	c.Use = "check [flags] [-- command args...]"
	c.Short = "Check a configuration, or print the effective one"
	c.Long = `Check reports all errors of a configuration at once, or prints "ok", the lease, how long
the group has no leader after each loss, which losses the configuration does not
survive, and what policy.failback means. With groups_dir it reads the files of all
groups, and prints their names and roots; -g prints the times of one group, and -o json
those of all.
--print prints the effective settings instead: those of the host, or with -g those of
a group, merged with the defaults.
Check also looks at this host: programs that do not exist or cannot be executed,
the working directory, files with secrets, and child.unit, which systemd must know
and must start only while this host leads. Run it as the daemon's user: others may
see other files. It then reads the groups in ZooKeeper, and says which of them
are new, because a mistyped root would start the work a second time, and warns about
problems of the policy: a site without members, or no eligible member. If ZooKeeper does
not answer, it says what was not checked; the exit status is about the rest.
A child's command that run gets after -- must be given to check as well: check fails
for what run refuses.
--offline checks the configuration alone, for another host than this one.`
	c.Args = childArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		from := sources(cmd, args)
		if err := from.Read(); err != nil {
			return err
		}
		h, err := config.LoadHost(from)
		if err != nil {
			return err
		}
		settings := h.YAML()
		if name != "" {
			g, found := h.Group(name)
			if !found {
				return fmt.Errorf("-g %s: the configuration has no such group: %s", name, some(namesOf(h)))
			}
			settings = g.YAML()
		}
		warnOf(cmd.ErrOrStderr(), h)
		if err := errors.Join(daemon.CheckWatch(from, h), h.CheckWork(), h.CheckFailsafe(), checkBudgets(h)); err != nil {
			return err
		}
		alone, err := checkBesides(cmd, h, offline)
		if err != nil {
			return err
		}
		if printed {
			_, err := io.WriteString(cmd.OutOrStdout(), settings)
			return err
		}
		return printChecked(cmd.OutOrStdout(), h, name, alone, *output == "json")
	}
	c.Flags().BoolVar(&offline, "offline", false, "check the configuration alone: neither programs, files and units "+
		"of this host, nor the groups in ZooKeeper")
	c.Flags().BoolVar(&printed, "print", false, "print the effective settings of the host, or with -g those of a group")
	c.Flags().StringVarP(&name, "group", "g", "", "print the times, or with --print the effective settings, of this group")
	c.MarkFlagsMutuallyExclusive("print", "output")
}

// checkBesides checks what a configuration names on this host and in ZooKeeper, unless offline. It returns the result
// of checkGroups.
func checkBesides(cmd *cobra.Command, h config.Host, offline bool) (alone map[string]bool, err error) {
	if offline {
		const text = "not checked: programs, files and units of this host, and the groups in ZooKeeper (--offline)"
		fmt.Fprintln(cmd.ErrOrStderr(), text)
		return nil, nil
	}
	if err := errors.Join(daemon.CheckFiles(h.Config), checkPlaces(h.Config), checkHost(cmd.Context(), h)); err != nil {
		return nil, err
	}
	if err := expiry(h.Config); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", printable(err.Error()))
	}
	return checkGroups(cmd.Context(), cmd.ErrOrStderr(), h), nil
}

// expiry returns an error if the certificate of this host for ZooKeeper has expired, or soon does.
func expiry(c config.Config) error {
	cert, err := operator.Access(c, os.Getenv).TLS.Certificate()
	if err != nil || cert == nil {
		return err
	}
	return cert.Check(time.Now())
}

// warnOf prints what is doubtful in a configuration that can be read.
func warnOf(w io.Writer, h config.Host) {
	for _, warning := range h.Warnings {
		fmt.Fprintln(w, "warning:", printable(warning))
	}
	for _, key := range h.Unset {
		fmt.Fprintf(w, "warning: %s is not set: the default is %s\n", key, h.Config.Setting(key))
	}
}

// ofGroup adds the file of a group to an error, if there are several groups.
func ofGroup(h config.Host, g config.Group, err error) error {
	if err == nil || h.Dir == "" {
		return err
	}
	return fmt.Errorf("%s: %w", g.File, err)
}

// checkBudgets returns an error for each group whose stop timeout is longer than the lease allows, and one for a
// required watchdog device that does not fit it.
func checkBudgets(h config.Host) error {
	var errs []error
	for _, g := range h.Groups {
		session := g.Config.ZooKeeper.LeaseBase(g.Config.ZooKeeper.SessionTimeout)
		_, err := g.Config.Budget(session)
		errs = append(errs, ofGroup(h, g, err))
	}
	return errors.Join(append(errs, checkDeviceFits(h.Config))...)
}

// checkDeviceFits returns an error if a watchdog device that is required does not fit the lease.
func checkDeviceFits(c config.Config) error {
	if c.Device.Mode != config.DeviceRequired {
		return nil // the work runs without it, and status says why
	}
	b, err := cluster.NewBudget(c.ZooKeeper.LeaseBase(c.ZooKeeper.SessionTimeout), c.Election.Lease, 0)
	if err != nil {
		return nil // as reported for each group
	}
	_, err = b.NewReset(0)
	return err
}

// checkPlaces returns an error for each directory of a configuration in which run creates no file, because others may
// write there. It says nothing about a directory that does not exist, as the unit may create it, or that is another
// user's, who may run the daemon.
func checkPlaces(c config.Config) error {
	socket, isPath := strings.CutPrefix(c.HTTP.Listen, "unix:")
	if !isPath {
		socket = ""
	}
	var errs []error
	for _, place := range []struct{ key, file string }{{"zookeeper.session_file", c.ZooKeeper.SessionFile},
		{"http.listen", socket}} {
		dir := filepath.Dir(place.file)
		var stat unix.Stat_t
		if place.file == "" || unix.Stat(dir, &stat) != nil || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
			continue
		}
		if err := secretfile.CheckDirectory(dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: the directory of %s %w", place.key, place.file, err))
		}
	}
	return errors.Join(errs...)
}

// checkHost returns an error for each program, directory and unit that this host does not have, and for each option
// that a fence agent does not know, or lacks.
func checkHost(ctx context.Context, h config.Host) error {
	var errs []error
	for _, g := range h.Groups {
		// No fence agent talks to its device for that.
		agents := operator.Fencing(g.Config).Check(ctx, g.Config.Fencing.SkipWait, fencer.Run)
		for _, err := range slices.Concat(hostcheck.Group(ctx, g.Config), agents) {
			errs = append(errs, ofGroup(h, g, err))
		}
	}
	return errors.Join(errs...)
}

// checkGroups warns about groups that do not exist, and about problems of the policies with the members of the groups.
// If they cannot be reached, it says what was not checked. It returns the groups, by name, in which no other member
// than this node may lead.
func checkGroups(ctx context.Context, w io.Writer, h config.Host) (alone map[string]bool) {
	alone = make(map[string]bool)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cfg := h.Config
	if cfg.ZooKeeper.ConnectTimeout == 0 {
		cfg.ZooKeeper.ConnectTimeout = time.Second
	}
	s, err := connect(ctx, cfg, h.From)
	if err != nil {
		fmt.Fprintln(w, "warning: not checked: the groups in ZooKeeper, and the policy with their members:",
			printable(err.Error()))
		return alone
	}
	defer s.Close(ctx)
	for _, one := range h.Groups {
		g := groupAt(s, one.Config, one.Name, one.Config.ZooKeeper.Root)
		g.host = h
		var warnings []string
		if missing, ok := errors.AsType[*store.MissingError](g.requireCreated(ctx)); ok {
			warnings = []string{"new: " + missing.Error()}
		} else {
			snap, found, err := policyWarnings(ctx, g)
			alone[one.Name] = err == nil && len(snap.Members) > 0 && !othersMayLead(snap, one.Config.Node.ID)
			switch warnings = found; {
			case errors.Is(err, cluster.ErrNoAuth):
				warnings = []string{"a daemon could not take part: " + err.Error()}
			case err != nil:
				warnings = []string{"not checked: the policy with the group's members: " + err.Error()}
			}
		}
		if err := checkRoot(ctx, s, h, one); err != nil {
			warnings = append(warnings, "a daemon could not take part: "+err.Error())
		}
		for _, text := range warnings {
			fmt.Fprintln(w, "warning:", printable(ofGroup(h, one, errors.New(text)).Error()))
		}
	}
	return alone
}

// checkRoot returns an error if this user may not create the root of a group.
func checkRoot(ctx context.Context, s *zk.Session, h config.Host, one config.Group) error {
	base := h.Config.ZooKeeper.Root
	if h.Dir == "" {
		base = path.Dir(base) // the root of the only group
	}
	return store.CheckRoot(ctx, s, base, one.Name, one.Config.ZooKeeper.Root)
}

// othersMayLead reports whether the group has a member besides this node that does not say of itself that it may not
// lead.
func othersMayLead(s cluster.Snapshot, node string) bool {
	return slices.ContainsFunc(s.Members, func(m cluster.Member) bool {
		return m.ID != node && m.Node.Record.Ineligible == ""
	})
}

// checkTimeout bounds how long check reads the groups.
const checkTimeout = 3 * time.Second

// policyWarnings returns the group as it was read, and the problems that the configured policy has with its members;
// if the configuration has none, those of the policy in force.
func policyWarnings(ctx context.Context, g group) (cluster.Snapshot, []string, error) {
	snap, err := g.read(ctx)
	if err != nil {
		return snap, nil, err
	}
	rec := cluster.Policy{Rules: g.cfg.Rules()}
	if g.cfg.Policy.LeftToGroup() && snap.Policy.Readable() {
		rec = snap.Policy.Record
	}
	compiled, err := policy.New(rec)
	if err != nil {
		return snap, nil, nil // refused with the configuration
	}
	warnings := append(compiled.Problems(&snap), g.host.UnknownGroups(rec.Rules)...)
	if err := operator.CheckEligible(g.cfg, snap, rec); err != nil {
		warnings = append(warnings, err.Error())
	}
	return snap, warnings, nil
}

// checkedConfig is the output of check with -o json.
type checkedConfig struct {
	Groups []checkedGroup `json:"groups"`
}

// checkedGroup says what becomes of a group after each loss.
type checkedGroup struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// SessionTimeout and what follows from it are those if the servers grant what is configured. StopTimeout is 0
	// without work.
	SessionTimeout cluster.Duration `json:"session_timeout"`
	Lease          cluster.Duration `json:"lease"`
	RenewInterval  cluster.Duration `json:"renew_interval"`
	StopTimeout    cluster.Duration `json:"stop_timeout,omitempty"`
	Losses         []losses.Loss    `json:"losses"`
	// Failback is the setting policy.failback; empty if the policy is not in the configuration.
	Failback string `json:"failback,omitempty"`
	// TakeoverTimeout is how long the start of the work may take before another member is tried.
	TakeoverTimeout cluster.Duration `json:"takeover_timeout"`

	slots bool // the group has slots
}

// printChecked prints that the configuration has no errors, and what becomes of the group with that name, or the only
// one, after each loss. It lists several groups; in JSON it prints the losses for all of them. Alone has the groups in
// which no other member may lead.
func printChecked(w io.Writer, h config.Host, name string, alone map[string]bool, asJSON bool) error {
	var out checkedConfig
	for _, g := range h.Groups {
		if name != "" && g.Name != name {
			continue
		}
		one, err := checkedOf(g, alone[g.Name])
		if err != nil {
			return err
		}
		out.Groups = append(out.Groups, one)
	}
	if asJSON {
		return printJSON(w, out)
	}
	text := groupsText(h.Dir, out.Groups)
	if len(out.Groups) == 1 && (h.Dir == "" || name != "") {
		text = timesText(out.Groups[0])
	}
	_, err := io.WriteString(w, "ok\n\n"+text)
	return err
}

// groupsText returns a list of the groups in a directory.
func groupsText(dir string, groups []checkedGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d groups in %s:\n", len(groups), dir)
	t := newTable(&b)
	for _, g := range groups {
		t.row(g.Group, g.Root)
	}
	t.Flush() // a strings.Builder does not fail
	return b.String()
}

func checkedOf(g config.Group, alone bool) (checkedGroup, error) {
	session := g.Config.ZooKeeper.SessionTimeout
	base := g.Config.ZooKeeper.LeaseBase(session)
	b, err := g.Config.Budget(base)
	if err != nil {
		return checkedGroup{}, err
	}
	failback := g.Config.Policy.Failback
	if g.Config.Policy.LeftToGroup() {
		failback = ""
	}
	return checkedGroup{
		Group: g.Name, Root: g.Config.ZooKeeper.Root,
		SessionTimeout: cluster.Duration(session), Lease: cluster.Duration(b.Lease),
		RenewInterval: cluster.Duration(b.Renew), StopTimeout: cluster.Duration(b.Stop),
		Losses:          operator.Losses(g.Config, b.Granted(session), alone),
		TakeoverTimeout: cluster.Duration(g.Config.TakeoverTimeout()),
		Failback:        failback,
		slots:           g.Config.Slots.Enabled(),
	}, nil
}

// timesText returns the times and the losses of a group.
func timesText(g checkedGroup) string {
	var b strings.Builder
	round := func(d cluster.Duration) string { return time.Duration(d).Round(10 * time.Millisecond).String() }
	stop := ""
	if g.StopTimeout > 0 {
		stop = ", and ends within a stop timeout of " + round(g.StopTimeout)
	}
	b.WriteString("If the servers grant the session timeout that is configured:\n")
	t := newTable(&b)
	t.row("lease", round(g.Lease), "how long the work goes on while ZooKeeper does not answer; it is renewed every "+
		round(g.RenewInterval)+stop)
	t.row("session timeout", round(g.SessionTimeout), "how long ZooKeeper may be away before the member must "+
		"register again")
	t.Flush() // a strings.Builder does not fail
	fmt.Fprintf(&b, "\nAfter a loss the next leader starts its work within the time below. That start, and the round "+
		"trips to ZooKeeper, come on\n"+
		"top; a candidate that needs more than %s for it is replaced.\n", time.Duration(g.TakeoverTimeout))
	t = newTable(&b)
	for _, l := range g.Losses {
		why := l.Why
		if !l.Survived() {
			why = "NOT SURVIVED: " + why
		}
		t.row(l.Kind.Words(), l.Time(), why)
	}
	t.Flush()
	if g.Failback == "" {
		fmt.Fprintf(&b, "\nThe policy is in ZooKeeper (policy.source is group): %s prints it.\n",
			cluster.InGroup("'zkelectd policy'", g.Group))
	} else {
		fmt.Fprintf(&b, "\nFailback is %s: %s.\n", g.Failback, failbackText(g))
	}
	return b.String()
}

// failbackText says what policy.failback means. Its value is valid.
func failbackText(g checkedGroup) string {
	const better = "a better member than a healthy leader, such as the preferred host when it comes back, takes over"
	switch delay, manual, _ := cluster.ParseFailback(g.Failback); {
	case manual:
		leader, of := g.Group, ""
		if g.slots {
			leader, of = cluster.SlotName(g.Group, "0"), ", here for slot 0"
		}
		return "leadership stays where it is until the leader fails or is drained, or until somebody runs\n" +
			cluster.InGroup("'zkelectd reelect'", leader) + " or " + cluster.InGroup("'zkelectd move'", leader) + of
	case delay > 0:
		return better + "\nonce it has been eligible for " + delay.String() + " without interruption"
	}
	return better + "\nat once: each such move stops and starts the work"
}
