package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/operator"
	"zkelectd/internal/request"
	"zkelectd/internal/status"
)

func slotsCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "slots", Short: "Show or change how many leaders a group has"}, slotsShowCommand(), slotsSetCommand())
}

// slotsState is the output of the commands about slots.
type slotsState struct {
	Root    string         `json:"root"`
	Count   int            `json:"count"`
	PerNode int            `json:"per_node"`
	Epoch   int64          `json:"epoch"`
	By      string         `json:"by"`
	Reason  string         `json:"reason,omitempty"`
	Time    time.Time      `json:"time"`
	Resize  *status.Resize `json:"resize,omitempty"`
	// Drift says how the configuration of this host differs; empty if it does not.
	Drift string `json:"drift,omitempty"`
}

// slotsOnly is the permission of the commands about slots.
func slotsOnly(g group) error {
	if g.kind != cluster.KindSlots {
		return fmt.Errorf("the group %s has one leader, and no slots; that cannot be changed: start a group with another name and with slots", g.name)
	}
	return wholeGroup(g)
}

func withSlots(cmd *cobra.Command, f func(ctx context.Context, g group) error) error {
	return withSelection(cmd, func(ctx context.Context, s selection) error { return s.withOnly(ctx, slotsOnly, f) })
}

func slotsShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show", Short: "Show how many slots a group has, and the resize that is under way", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withSlots(cmd, func(ctx context.Context, g group) error {
				read, err := g.readSlots(ctx, false)
				if err == nil {
					err = checkSlotsExist(g, read.Shared.Slots)
				}
				if err != nil {
					return err
				}
				return g.slotsState(read).print(cmd.OutOrStdout(), output)
			})
		},
	}
	groupFlags(cmd)
	outputFlag(cmd, &output)
	return cmd
}

func checkSlotsExist(g group, read cluster.Stored[cluster.Slots]) error {
	if read.Err == nil && !read.Exists {
		return fmt.Errorf("the group %s has no slots yet: no daemon has joined it", g.name)
	}
	return read.Err
}

func (g group) slotsState(read operator.SlotGroup) slotsState {
	rec := read.Shared.Slots.Record
	return slotsState{
		Root: g.paths.Root, Count: rec.Count, PerNode: rec.PerNode, Epoch: rec.Epoch, By: rec.By, Reason: rec.Reason, Time: rec.Time,
		Resize: status.OfSlots(g.name, g.paths.Root, read.Shared, read.Snapshots).Resize, Drift: operator.SlotsDrift(g.name, g.cfg.Slots, read.Shared.Slots),
	}
}

func (s slotsState) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, text string) { fmt.Fprintf(t, "%s\t%s\n", name, printable(text)) }
	row("Group", s.Root)
	row("Slots", fmt.Sprintf("%s; epoch %d", cluster.SlotSize{Count: s.Count, PerNode: s.PerNode}, s.Epoch))
	set := fmt.Sprintf("by %s at %s", s.By, s.Time.Local().Format(time.DateTime))
	if s.Reason != "" {
		set += ": " + s.Reason
	}
	if r := s.Resize; r != nil {
		row("Resize", fmt.Sprintf("to %s, %s; it waits %s", cluster.SlotSize{Count: r.Count, PerNode: r.PerNode}, set, r.Waits))
	} else {
		row("Set", set)
	}
	if s.Drift != "" {
		row("Drift", s.Drift)
	}
	return t.Flush()
}

// resize is the command that changes the number of slots.
type resize struct {
	size        cluster.SlotSize
	reason      string
	yes, wait   bool
	dry         bool
	timeout     time.Duration
	out         io.Writer
	in          io.Reader
	interactive bool
}

func slotsSetCommand() *cobra.Command {
	var r resize
	cmd := &cobra.Command{
		Use: "set --count N", Short: "Change how many leaders a group has; all of them restart", Args: cobra.NoArgs,
		Long: `Set changes the number of slots of a group, or how many of them one node can lead. It
first shows the plan, and asks.

All leaders of the group stop. When the work of all of them is known to have ended, the
new slots get leaders. That takes as long as the slowest stop; if a leader cannot be
asked to stop, as its host is lost, its lease is waited for. The configuration of the
hosts is not changed, and need not agree; correct it afterwards.

A resize that is under way cannot be changed. The same command can be repeated, with
--wait to see how it goes on.`,
	}
	groupFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&r.size.Count, "count", 0, "the number of slots")
	f.IntVar(&r.size.PerNode, "per-node", 0, "how many slots one node can lead at most (default: as before, or if that was all of them, all)")
	f.StringVar(&r.reason, "reason", "", fmt.Sprintf("the reason, shown by status; at most %d bytes", request.MaxReason))
	f.BoolVar(&r.yes, "yes", false, "do it without asking")
	f.BoolVar(&r.dry, "dry-run", false, "print the plan, without changing anything")
	f.BoolVar(&r.wait, "wait", false, "wait until the resize has ended, and show the progress")
	f.DurationVar(&r.timeout, "timeout", 2*time.Minute, "how long to wait with --wait")
	if err := cmd.MarkFlagRequired("count"); err != nil {
		panic(err) // the flag exists
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(r.reason) > request.MaxReason {
			return fmt.Errorf("the reason has %d bytes: at most %d", len(r.reason), request.MaxReason)
		}
		r.out, r.in = cmd.OutOrStdout(), cmd.InOrStdin()
		input, ok := r.in.(*os.File)
		r.interactive = ok && isTerminal(input)
		return withSlots(cmd, r.run)
	}
	return cmd
}

func (r *resize) run(ctx context.Context, g group) error {
	read, err := g.readSlots(ctx, false)
	if err == nil {
		err = checkSlotsExist(g, read.Shared.Slots)
	}
	if err != nil {
		return err
	}
	slots := read.Shared.Slots
	rec := slots.Record
	if r.size.PerNode == 0 {
		r.size.PerNode = r.perNode(rec)
	}
	if err := operator.CheckResize(g.paths.Slots(), slots, r.size); err != nil {
		return err
	}
	switch {
	case rec.Next != nil:
		fmt.Fprintf(r.out, "the %s is under way already\n", printable(rec.Closed()))
	case rec.SlotSize == r.size:
		_, err := fmt.Fprintf(r.out, "the group %s has %s already\n", printable(g.name), r.size)
		return err
	default:
		r.plan(g, read)
		if r.dry {
			break
		}
		if err := r.confirm(); err != nil {
			return err
		}
		if err := g.closeForResize(ctx, slots, rec.Resized(r.size, whoami(), r.reason, time.Now())); err != nil {
			return err
		}
		fmt.Fprintln(r.out, "the resize has begun: all leaders stop")
	}
	if r.dry {
		fmt.Fprintln(r.out, "dry run: nothing was changed")
		return nil
	}
	if !r.wait {
		return nil
	}
	return r.await(ctx, g, read.Shared)
}

// perNode returns the limit for each node if none is given: the present one, if there was one.
func (r *resize) perNode(now cluster.Slots) int {
	if now.PerNode >= now.Count {
		return r.size.Count
	}
	return min(now.PerNode, r.size.Count)
}

func (r *resize) plan(g group, read operator.SlotGroup) {
	rec := read.Shared.Slots.Record
	leaders := 0
	for _, s := range read.Snapshots {
		if s.Current.Exists {
			leaders++
		}
	}
	fmt.Fprintf(r.out, "%s: from %s to %s\n", printable(g.name), rec.SlotSize, r.size)
	fmt.Fprintf(r.out, "  all %d leaders stop; no slot has a leader until all of their work has ended\n", leaders)
	for _, s := range read.Snapshots {
		if !s.Current.Exists && !cleanEnd(s.Fence) {
			fmt.Fprintf(r.out, "  slot %s did not end cleanly: the resize waits until its lease is over\n", s.Slot)
		}
	}
	members := len(read.Shared.Members)
	if room := members * r.size.PerNode; room < r.size.Count {
		fmt.Fprintf(r.out, "  warning: %d members with at most %d slots each can lead only %d of %d slots\n", members, r.size.PerNode, room, r.size.Count)
	}
}

// cleanEnd reports whether the last leadership of a slot, if there was any, was released.
func cleanEnd(fence cluster.Stored[cluster.Fence]) bool {
	return errors.Is(fence.Err, cluster.ErrNeverWritten) || fence.Readable() && fence.Record.State == cluster.FenceReleased
}

func (r *resize) confirm() error {
	if r.yes {
		return nil
	}
	if !r.interactive {
		return refuse("nothing was changed: add --yes to do it")
	}
	fmt.Fprint(r.out, "Do it? [y/N] ")
	answer, _ := bufio.NewReader(r.in).ReadString('\n') // an error is no confirmation
	if strings.ToLower(strings.TrimSpace(answer)) != "y" {
		return refuse("nothing was changed")
	}
	return nil
}

// closeForResize writes the record that begins a resize.
func (g group) closeForResize(ctx context.Context, read cluster.Stored[cluster.Slots], next cluster.Slots) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	_, err := g.session.Do(ctx, g.paths.SlotsTx("", read, next)...)
	show := cluster.InGroup("'zkelectd slots show'", g.name)
	switch {
	case errors.Is(err, cluster.ErrBadVersion):
		return fmt.Errorf("znode %s has changed in the meantime: see %s, and run this again if it is still wanted", g.paths.Slots(), show)
	case errors.Is(err, cluster.ErrUnknown):
		return fmt.Errorf("the connection was lost while znode %s was written; %s shows whether it was: %w", g.paths.Slots(), show, err)
	case err != nil:
		return fmt.Errorf("cannot write znode %s: %w", g.paths.Slots(), err)
	}
	return nil
}

// await shows how the resize goes on, until it has ended and the slots have leaders. before is what was read before it began.
func (r *resize) await(ctx context.Context, g group, before cluster.Snapshot) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	last := ""
	err := g.followSlots(limited, func(read operator.SlotGroup) error {
		text, done := resizeProgress(g, read, before)
		if text != last {
			last = text
			fmt.Fprintf(r.out, "%8s  %s\n", time.Since(began).Round(time.Millisecond), printable(text))
		}
		if done {
			return errDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errDone):
		return nil
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted; the resize goes on")
	}
	return exitError{statusTimedOut, fmt.Errorf("not done after %s (--timeout); the resize goes on: %s", r.timeout, last)}
}

// resizeProgress describes how far a resize is, and reports whether it is over and as many slots as possible have a READY leader. All
// members register again after it.
func resizeProgress(g group, read operator.SlotGroup, before cluster.Snapshot) (text string, done bool) {
	rec := read.Shared.Slots.Record
	view := status.OfSlots(g.name, g.paths.Root, read.Shared, read.Snapshots)
	if view.Resize != nil {
		return "waits " + view.Resize.Waits, false
	}
	ready := 0
	for _, s := range view.Slots {
		if s.State == string(cluster.CurrentReady) {
			ready++
		}
	}
	text = fmt.Sprintf("%s in force, epoch %d; %d of %d have a READY leader", rec.SlotSize, rec.Epoch, ready, rec.Count)
	over := rec.Epoch != before.Slots.Record.Epoch
	if ready == rec.Count || !over || !allBack(before.Members, read.Shared.Members) {
		return text, over && ready == rec.Count
	}
	missing := g.slotView(read)
	stuck := 0
	for _, s := range missing.Slots {
		if s.NoLeader != "" {
			stuck++
			text += fmt.Sprintf("; slot %s: %s", s.Slot, s.NoLeader)
		}
	}
	return text, ready+stuck == rec.Count
}

// allBack reports whether the nodes of all members have registered again.
func allBack(before, now []cluster.Member) bool {
	for _, m := range before {
		if !slices.ContainsFunc(now, func(n cluster.Member) bool { return n.ID == m.ID && n.Name != m.Name }) {
			return false
		}
	}
	return true
}

// initializeSlots creates a group with the slots of the configuration, none of which has a leader.
func (g group) initializeSlots(ctx context.Context, w io.Writer) error {
	size := cluster.SlotSize{Count: g.cfg.Slots.Count, PerNode: g.cfg.Slots.Limit()}
	if !g.cfg.Slots.Enabled() {
		return fmt.Errorf("the group %s has slots, but this configuration has none: name one that has with --config", g.name)
	}
	for i := range size.Count {
		if err := zkstore.Init(ctx, g.session, g.paths.OfSlot(i), whoami()); err != nil {
			return err
		}
	}
	read, err := operator.ReadSlots(ctx, g.session, g.paths, false)
	if err != nil {
		return err
	}
	if errors.Is(read.Err, cluster.ErrNoSlots) || !read.Exists {
		if err := zkstore.DoSplit(ctx, g.session, g.paths, g.paths.SlotsTx("", read, cluster.NewSlots(size, whoami(), time.Now()))); err != nil {
			return fmt.Errorf("cannot write znode %s: %w", g.paths.Slots(), err)
		}
	}
	_, err = fmt.Fprintf(w, "the group %s is initialized with %s: its first leaders need not wait\n", printable(g.paths.Root), size)
	return err
}
