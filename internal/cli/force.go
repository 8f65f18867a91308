package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
)

func forceCommand(c *command) {
	var f forcing
	c.Use = "force"
	c.Short = "Let a group elect a leader again after all hosts of failsafe mode were lost for good"
	c.Long = `Force is for one case: in failsafe mode the last leader and all members that had promised
to let nobody take over are lost for good, with their state directories. Then the group
has no leader, because one of them might still work.

It shows what is known, and asks you to type the group's name and the term. With that you
declare that the hosts it lists are powered off: IF ONE OF THEM STILL WORKS, THERE ARE TWO
LEADERS. Then the members elect one, which first waits as after any lost leader.

It refuses while the group has a leader, and while one of those nodes is registered: that
node ends the standstill by itself. So bring one back instead, if you can. A script gives
--confirm GROUP:TERM. See docs/failsafe.md.`
	c.Flags().StringVar(&f.confirm, "confirm", "", "the group's name and the term, as GROUP:TERM, instead of typing them")
	c.Flags().StringVar(&f.reason, "reason", "", fmt.Sprintf("the reason, shown by history; at most %d bytes", request.MaxReason))
	c.Flags().BoolVar(&f.dry, "dry-run", false, "only show what is known, and whether the group is stuck")
	c.check = func([]string) error {
		if len(f.reason) > request.MaxReason {
			return fmt.Errorf("--reason has %d bytes, more than %d", len(f.reason), request.MaxReason)
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		return f.run(ctx, g, c.InOrStdin(), c.OutOrStdout())
	}
}

// forcing is what the command force was given.
type forcing struct {
	confirm, reason string
	dry             bool
}

func (f forcing) run(ctx context.Context, g group, in io.Reader, w io.Writer) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	if err := snap.CheckStuck(); err != nil {
		return refuse("%s is not stuck in failsafe mode, and nothing was changed: %w", g.name, err)
	}
	if err := showStuck(w, g.name, &snap); err != nil || f.dry {
		return err
	}
	want := fmt.Sprintf("%s:%d", g.name, snap.Fence.Record.Term)
	if f.confirm == "" {
		if err := confirmTyped(in, w, "the group's name and the term", want, "--confirm "+want); err != nil {
			return err
		}
	} else if f.confirm != want {
		return refuse("nothing was done: --confirm must be %s", want)
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	noted, err := operator.Force(ctx, g.session, g.paths, snap, cluster.Forced{By: whoami(), Reason: f.reason, Time: time.Now().UTC()})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "done: the members of %s may elect a leader; it waits %s before its work\n", printable(g.name), longestWait(&snap))
	if !noted {
		fmt.Fprintf(w, "The history has no entry of term %d, so only the fence says who has done this.\n", snap.Fence.Record.Term)
	}
	return nil
}

// longestWait returns how long the successor waits at most.
func longestWait(s *cluster.Snapshot) time.Duration {
	var known cluster.LastKnown
	return known.LeaseWait(s).Round(10 * time.Millisecond)
}

// showStuck shows what is known of a group that is stuck, and what must be true.
func showStuck(w io.Writer, name string, s *cluster.Snapshot) error {
	f := &s.Fence.Record
	ids := f.FailsafeNodes()
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("%s is stuck: %s led in term %d, has not released leadership, and may still work in failsafe mode.", printable(name), printable(f.Node), f.Term)
	p("A successor has to wait until one of these nodes is back:")
	for _, id := range ids {
		p("  %s", printable(describeLost(s, id)))
	}
	if wait := f.CapWait(); wait > 0 {
		p("By failsafe.max, a member takes over by itself %s after it has seen that the leader's session has ended.", wait.Round(time.Second))
	}
	p("")
	p("If one of them can start again with its state directory, start it instead: that is enough, and safe.")
	p("Otherwise these hosts must be powered off, and stay so until they have been installed anew: %s.", printable(strings.Join(ids, ", ")))
	_, err := fmt.Fprintln(w, "If one of them still works, there will be two leaders. zkelectd cannot check that.")
	return err
}

// describeLost says what is known of a node that can no longer say whether its work has ended.
func describeLost(s *cluster.Snapshot, id string) string {
	f := &s.Fence.Record
	text, host := id, ""
	if id == f.Node {
		text, host = id+", the leader", f.Host
	}
	for _, h := range f.Earlier {
		if h.Node == id {
			host = cmp.Or(host, h.Host)
		}
	}
	if host != "" {
		text += " (host " + host + ")"
	}
	i := slices.IndexFunc(s.Members, func(m cluster.Member) bool { return m.ID == id })
	if i < 0 {
		return text + ": not registered"
	}
	return text + ": registered again from host " + cmp.Or(s.Members[i].Node.Record.Host, "not known") + ", without the state directory that it had"
}
