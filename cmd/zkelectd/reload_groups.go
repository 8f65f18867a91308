package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

// membership is the node record of this host's daemon in one group.
type membership struct {
	group group
	node  cluster.Node
}

// many reloads a daemon with many groups. refused has the errors of group files, which the daemon refuses as well.
func (r reloading) many(cmd *cobra.Command, h config.Host, refused error) error {
	return withChoice(cmd, h, choice{}, func(ctx context.Context, s selection) error {
		members, err := s.ownMembers(ctx)
		if err != nil {
			return err
		}
		pid, id := members[0].node.PID, members[0].node.ID
		if err := signalDaemon(pid, id, r.signal()); err != nil {
			return err
		}
		results, err := r.await(ctx, members)
		if err != nil {
			return err
		}
		text, err := describeReload(results, refused)
		fmt.Fprint(cmd.OutOrStdout(), text)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s has reloaded its configuration\n", printable(id))
		}
		for i, a := range results {
			if a.changed() {
				err = errors.Join(err, members[i].group.printBlocked(ctx, cmd.OutOrStdout(), a.name+": "))
			}
		}
		return err
	})
}

// ownMembers returns the records of the daemon with the configuration's id on this host.
func (s selection) ownMembers(ctx context.Context) ([]membership, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	var all []membership
	for _, g := range s.groups {
		node, err := g.node(ctx)
		if ctx.Err() != nil || s.session.Err() != nil {
			return nil, err
		}
		if err == nil && node.Host == host {
			all = append(all, membership{g, node})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no daemon %q of this host is a member of a group below %s; name it with --id, or signal it with 'systemctl reload'",
			s.host.Config.Node.ID, s.host.Config.ZooKeeper.Root)
	}
	for _, m := range all {
		if first := all[0]; m.node.PID != first.node.PID {
			return nil, fmt.Errorf("%s is the id of process %d in group %s and of process %d in group %s: signal one of them with 'systemctl reload'",
				m.node.ID, first.node.PID, first.group.name, m.node.PID, m.group.name)
		}
	}
	return all, nil
}

// reloadAnswer is what the daemon reports in one group.
type reloadAnswer struct {
	name string
	node cluster.Node
	left bool
}

// changed reports whether a setting of the group has changed.
func (a reloadAnswer) changed() bool {
	return !a.left && a.node.Refused == "" && a.node.Reloaded != "" && a.node.Reloaded != unchanged
}

// await waits until the daemon has reported the result in each group that it has not left.
func (r reloading) await(ctx context.Context, members []membership) ([]reloadAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var results []reloadAnswer
	for _, m := range members {
		node, err := m.group.awaitReload(ctx, m.node)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, r.noAnswer(m.node)
		case err != nil && !errors.Is(err, errLeft):
			return nil, err
		}
		results = append(results, reloadAnswer{m.group.name, node, err != nil})
	}
	return results, nil
}

// describeReload returns a line for each group that has changed, and an error if something was refused.
func describeReload(results []reloadAnswer, files error) (string, error) {
	var text strings.Builder
	var refused []string
	same := true
	for _, a := range results {
		switch {
		case a.left:
			fmt.Fprintf(&text, "%s: left\n", a.name)
		case a.node.Refused != "":
			refused = append(refused, a.node.Refused)
		case a.changed():
			fmt.Fprintf(&text, "%s: %s\n", a.name, printable(a.node.Reloaded))
		}
		same = same && a.node.Refused != "" && a.node.Refused == results[0].node.Refused
	}
	if same {
		return text.String(), refusedError(refused[0])
	}
	if files != nil {
		for line := range strings.SplitSeq(files.Error(), "\n") {
			if !strings.Contains(strings.Join(refused, "\n"), line) { // the file of a group that this host is no member of
				refused = append(refused, line)
			}
		}
	}
	if len(refused) > 0 {
		return text.String(), exitError{statusFailed, fmt.Errorf("reloaded, but these groups stay as they are:\n%s", printableText(strings.Join(refused, "\n")))}
	}
	return text.String(), nil
}

// unchanged is what a daemon reports for a group without changes.
const unchanged = "no setting has changed"
