package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

func groupCommand(c *command) {
	var yes, dry bool
	c.Use = "group delete"
	c.Short = "Delete what remains in ZooKeeper of a group that has been retired"
	c.Long = `Group delete removes the znodes of a group for good: its history, policy and requests. It
shows what it will delete, and asks you to type the group's name; --yes needs -g.

First take the group off all hosts. It is refused, with exit status 3, while a daemon is
in the group, and unless the last leader has released leadership: its work may still run.

The jobs of exec are groups below /jobs: use --root /jobs -g JOB.`
	c.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
	c.ValidArgs = []string{"delete"}
	output := c.outputFlag()
	c.Flags().BoolVar(&yes, "yes", false, "do it without asking; needs -g")
	c.Flags().BoolVar(&dry, "dry-run", false, "only show what would be deleted")
	c.check = func([]string) error {
		if yes && !c.Flags().Changed("group") {
			return errors.New("--yes needs the name of the group: add -g")
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		d := deletedGroup{result: c.result(output), Group: g.name, Root: g.paths.Root}
		return d.finish(&d, g.remove(ctx, &d, yes, dry))
	}
}

// deletedGroup is the output of 'group delete'.
type deletedGroup struct {
	result
	Group string `json:"group"`
	Root  string `json:"root"`
	// Deleted is set if this command has deleted something.
	Deleted bool `json:"deleted"`
}

// remove deletes the group.
func (g group) remove(ctx context.Context, d *deletedGroup, yes, dry bool) error {
	remains, err := g.remains(ctx)
	if err != nil {
		return err
	}
	if len(remains.Znodes) == 0 && remains.Name == nil {
		return g.requireCreated(ctx)
	}
	if _, err := remains.DeleteTx(); err != nil {
		return g.refuseDeletion(err, remains.IsJob())
	}
	d.say("The group %s has no members. This is deleted for good:", g.name)
	for _, line := range remains.Describe() {
		d.say("  %s", line)
	}
	if !remains.IsJob() {
		d.say("a host that has been in it, and has it in its configuration, creates it again when its daemon starts: " +
			"remove it there first")
	}
	if warning := tokenWarning(remains, time.Now()); warning != "" {
		d.say("warning: %s", warning)
	}
	if dry {
		return nil
	}
	if !yes {
		if err := d.confirm("the group's name", g.name, "-g "+cluster.ShellWord(g.name)+" --yes"); err != nil {
			return err
		}
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	err = store.DeleteRemains(ctx, g.session, remains)
	switch {
	case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNotEmpty), errors.Is(err, cluster.ErrNoNode):
		return refuse("nothing was deleted: a daemon or a command has used the group at the same time (%w)", err)
	case errors.Is(err, cluster.ErrUnknown):
		return fmt.Errorf("the connection was lost while the group %s was deleted: run this again to see "+
			"whether it was: %w", g.name, err)
	case err != nil:
		return fmt.Errorf("nothing was deleted: %w", err)
	}
	d.Deleted = true
	d.say("the group %s is deleted", g.name)
	return nil
}

// remains reads what the group has in ZooKeeper.
func (g group) remains(ctx context.Context) (cluster.Remains, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	base := g.host.Config.ZooKeeper.Root
	if base == g.paths.Root {
		base = path.Dir(base) // the root of the only group
	}
	return store.ReadRemains(ctx, g.session, base, g.name, g.paths)
}

// tokenWarning says until when a new group of the same name would give fencing tokens again that were given before;
// empty if it would not. Its first term follows from the clock of a host, which terms can be ahead of, and after init
// it is no higher than that.
func tokenWarning(remains cluster.Remains, now time.Time) string {
	last, of := remains.LastToken()
	if last < cluster.FirstTerm(now) {
		return ""
	}
	if last >= cluster.MaxClock {
		return fmt.Sprintf("the last %s, %d, is ahead of any clock: a new group of this name would give the same "+
			"fencing tokens again, "+
			"so give it another name", of, last)
	}
	return fmt.Sprintf("the last %s, %d, is ahead of the clock: before %s a new group of this name could give the "+
		"same fencing tokens again. "+
		"Create it after that time, or give it another name", of, last, time.Unix(last+1, 0).UTC().Format(time.RFC3339))
}

// refuseDeletion says what to do before a group can be deleted. job is set for the group of a job of exec, which has no
// daemons to stop or to start.
func (g group) refuseDeletion(err error, job bool) error {
	var used *cluster.InUseRemainsError
	inUse := errors.As(err, &used)
	switch {
	case inUse && job:
		return refuse("nothing was deleted: these hosts run the job %s, or wait for it: %s. Wait until it has ended, "+
			"or send SIGTERM to zkelectd exec on each of them, "+
			"and keep cron and timers from starting it again. Then run this again", g.name, strings.Join(used.Members, ", "))
	case inUse:
		return g.hasMembers("deleted", used.Members)
	case job:
		base, name := path.Split(g.paths.Root)
		base = path.Clean(base)
		run := cluster.InGroup("'zkelectd exec --root %s --once-per 0s -- true'", name, base)
		if g.kind == cluster.KindSlots { // a run takes one slot: the only one, which waits for all that there were
			run = cluster.InGroup("'zkelectd slots --root %s 1'", name, base) + " and then " +
				cluster.InGroup("'zkelectd exec --root %s --max 1 -- true'", name, base)
		}
		return refuse("nothing was deleted: %w. If work may still run, run %s: it starts once that is safe, and its "+
			"end releases leadership; then run this again", err, run)
	}
	return refuse("nothing was deleted: %w. If work may still run, start a daemon of the group and stop it when it "+
		"is READY: it takes over once that is safe, "+
		"and releases; then run this again", err)
}

// hasMembers returns the error for what needs a group without members. done is what was not done.
func (g group) hasMembers(done string, ids []string) error {
	return refuse("nothing was %s: these daemons are in the group %s: %s. On each of their hosts, stop the daemon "+
		"('systemctl stop zkelectd'); "+
		"or, if it has other groups, rename the file %s.yaml in groups_dir to %s.yaml.disabled and run "+
		"'systemctl reload zkelectd'. "+
		"Then run this again", done, g.name, strings.Join(ids, ", "), g.name, g.name)
}
