package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// The resource with several leaders: the leader of each slot works on its part of a stream.
const (
	streamName  = "stream"
	streamSlots = 4
	perNode     = 2
)

// configureStream writes the file of the resource with several leaders.
func (f *fleet) configureStream() error {
	var errs []error
	for i := range streamSlots {
		errs = append(errs, os.Mkdir(f.childDir(slotName(i)), 0o700))
	}
	text := fmt.Sprintf(`slots: {count: %d, per_node: %d}
child: {command: ["%s", child, --dir, "%s-${ZKELECTD_SLOT}"]}
policy: {failback: immediate}
`, streamSlots, perNode, f.opt.child, f.childDir(streamName))
	errs = append(errs, os.WriteFile(filepath.Join(f.groupsDir(), streamName+".yaml"), []byte(text), 0o600))
	return errors.Join(errs...)
}

func slotName(i int) string { return fmt.Sprintf("%s-%d", streamName, i) }

// slotLeaders returns the READY leader of each slot; empty for one that has none.
func (f *fleet) slotLeaders(ctx context.Context) (ids []string, terms []int64, err error) {
	for i := range streamSlots {
		s, err := store.ReadAll(ctx, f.session, groupPaths(streamName).OfSlot(i), false)
		if err != nil {
			return nil, nil, err
		}
		id := ""
		if s.Ready() && s.Current.Readable() && s.Current.Record.State == cluster.CurrentReady {
			id = s.Elected.Record.Node
		}
		ids, terms = append(ids, id), append(terms, s.Elected.Record.Term)
	}
	return ids, terms, nil
}

// untilSlotsAreEven waits until every slot has a leader, without has none of them, and the numbers of the others differ
// by one at most. It checks that the child of each slot answers.
func (f *fleet) untilSlotsAreEven(ctx context.Context, without string) error {
	var ids []string
	var terms []int64
	err := poll(ctx, func(ctx context.Context) (err error) {
		if ids, terms, err = f.slotLeaders(ctx); err == nil && !even(ids, without) {
			err = errors.New("not yet")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the slots of %s are led by %q, without %q in time: %w", streamName, ids, without, err)
	}
	for i, id := range ids {
		if _, err := ask(ctx, f.childDir(slotName(i)), id, terms[i]); err != nil {
			return fmt.Errorf("slot %d of %s: %w", i, streamName, err)
		}
	}
	return nil
}

// even reports whether every slot has a leader, and the numbers of the nodes' slots differ by one at most. The node
// without has none.
func even(leaders []string, without string) bool {
	counts := make(map[string]int)
	for _, n := range nodes {
		if n.id != without {
			counts[n.id] = 0
		}
	}
	for _, id := range leaders {
		if _, known := counts[id]; !known {
			return false
		}
		counts[id]++
	}
	var all []int
	for _, n := range counts {
		all = append(all, n)
	}
	return slices.Max(all)-slices.Min(all) <= 1
}
