package cluster

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Remains are the znodes of a group that has been retired, as they were read: each parent before its children.
type Remains struct {
	Paths  Paths
	Znodes []RemainingZnode
	// Name is the record of the group's name, if that is another znode than the root; see [IdentityPath].
	Name *RemainingZnode
}

// RemainingZnode is a znode with its data.
type RemainingZnode struct {
	Path string
	Data []byte
	Stat Stat
}

// InUseRemainsError is the error for a group that still has members.
type InUseRemainsError struct{ Members []string }

func (e *InUseRemainsError) Error() string {
	return "these daemons are in the group: " + strings.Join(e.Members, ", ")
}

// IsParent reports whether znode, which belongs to a group, may have children that belong to it, too.
func (p Paths) IsParent(znode string) bool {
	switch znode {
	case p.Root, p.Nodes(), p.Election(), p.Leader(), p.Slots(), LeaseZnodes(p.Root), Loads(p.Root):
		return true
	}
	return path.Dir(znode) == p.Slots() && SlotNumber(path.Base(znode)) >= 0
}

// has reports whether a group consists of such a znode.
func (p Paths) has(znode string) bool {
	parent := path.Dir(znode)
	switch {
	case p.IsParent(znode):
		return true
	case parent == p.Nodes(), parent == p.Election(), parent == LeaseZnodes(p.Root), parent == Loads(p.Root):
		return true
	case path.Dir(parent) == p.Slots():
		p.Slot = path.Base(parent)
	}
	return znode == p.Current() || slices.Contains(p.Persistent(), znode)
}

// DeleteTx returns the transaction that deletes all that remains of the group. It is refused if a daemon registers, or
// writes anything, after it was read. The error says why the group must not be deleted: it has members, or work may
// still be running, whose successor must know of it (S1), or there is a znode that is none of a group's.
func (r *Remains) DeleteTx() ([]Op, error) {
	var members []string
	for _, z := range r.Znodes {
		name := path.Base(z.Path)
		switch parent := path.Dir(z.Path); {
		case !r.Paths.has(z.Path):
			return nil, fmt.Errorf("znode %s is none of a group of this zkelectd: upgrade this host, or look who "+
				"uses it and delete it", z.Path)
		case z.Stat.Owner == 0:
		case parent == r.Paths.Nodes():
			members = append(members, name)
		case parent == r.Paths.Election():
			if in, err := ParseIncarnation(name); err == nil {
				name = in.ID
			}
			members = append(members, name)
		case parent == LeaseZnodes(r.Paths.Root): // of a daemon that has only this group
			members = append(members, name[:max(0, strings.LastIndex(name, "-"))])
		case parent == Loads(r.Paths.Root):
			members = append(members, name)
		}
	}
	if len(members) > 0 {
		slices.Sort(members)
		return nil, &InUseRemainsError{slices.Compact(members)}
	}
	for _, p := range r.slotPaths(r.slotCount()) {
		if err := r.checkOver(p); err != nil {
			return nil, err
		}
	}
	var ops []Op
	for _, z := range slices.Backward(r.Znodes) {
		ops = append(ops, Op{Kind: OpDelete, Path: z.Path, Version: z.Stat.Version})
	}
	if r.Name != nil {
		ops = append(ops, Op{Kind: OpDelete, Path: r.Name.Path, Version: r.Name.Stat.Version})
	}
	return ops, nil
}

// slotPaths returns the paths of the leaderships that the group has had, with those of its first slots.
func (r *Remains) slotPaths(slots int) []Paths {
	all := []Paths{r.Paths}
	for i := range slots {
		if _, _, exists := r.find(r.Paths.OfSlot(i).Leader()); exists {
			all = append(all, r.Paths.OfSlot(i))
		}
	}
	return all
}

// slotCount returns how many slots count: all that there may be if that is not known. A slot that is no longer counted
// is none: the first leaders of the slots that are have waited for it, see [Paths.SetSlotsTx].
func (r *Remains) slotCount() int {
	if s := r.slots(); s.Readable() {
		return s.Record.Count
	}
	return MaxSlots
}

func (r *Remains) slots() Stored[Slots] {
	data, stat, exists := r.find(r.Paths.Slots())
	return ReadSlots(r.Paths.Slots(), data, stat, exists)
}

// checkOver returns an error unless the work of a leadership is known to have ended, and nobody has to be fenced any
// more.
func (r *Remains) checkOver(p Paths) error {
	s := Snapshot{Fence: r.fence(p)}
	_, _, elected := r.find(p.Elected())
	_, _, current := r.find(p.Current())
	_, _, led := r.find(p.History())
	f := &s.Fence.Record
	switch {
	case s.Fence.Newer() != nil:
		return s.Fence.Newer()
	case current:
		return fmt.Errorf("znode %s exists: a leader or a candidate has not released leadership, and its "+
			"session has not ended", p.Current())
	case f.CheckSuccession() != nil:
		return fmt.Errorf("znode %s: %w", p.Leader(), f.CheckSuccession())
	case !s.Fence.Readable() && !elected && !led && (!s.Fence.Exists || errors.Is(s.Fence.Err, ErrNeverWritten)):
		return nil // nobody has ever been elected
	case !s.Fence.Readable():
		return fmt.Errorf("znode %s is missing or damaged: it is not known whether the work of the last "+
			"leader has ended", p.Leader())
	case f.State == FenceReleased:
		return nil
	case f.Node == "":
		return fmt.Errorf("znode %s: it is not known whether a leader's work still runs", p.Leader())
	}
	return fmt.Errorf("znode %s: %s has not released leadership properly in term %d (%s): work may still run, or a "+
		"host may have to be fenced", p.Leader(), f.Node, f.Term, f.State)
}

func (r *Remains) fence(p Paths) Stored[Fence] {
	data, stat, exists := r.find(p.Leader())
	return ReadFence(p.Leader(), data, stat, exists)
}

func (r *Remains) find(znode string) ([]byte, Stat, bool) {
	i := slices.IndexFunc(r.Znodes, func(z RemainingZnode) bool { return z.Path == znode })
	if i < 0 {
		return nil, Stat{}, false
	}
	return r.Znodes[i].Data, r.Znodes[i].Stat, true
}

// IsGroup reports whether the root is that of a group: its record says so, or, where only an administrator may write
// it, it has the znode of the registrations.
func (r *Remains) IsGroup() bool {
	data, stat, exists := r.find(r.Paths.Root)
	if id := ReadIdentity(r.Paths.Root, data, stat, exists); id.Readable() && id.Record.Root != "" {
		return id.Record.Root == r.Paths.Root
	}
	_, _, registrations := r.find(r.Paths.Election())
	return registrations
}

// IsJob reports whether the group is that of a job of 'zkelectd exec' that has been run, see [Run].
func (r *Remains) IsJob() bool {
	_, _, run := r.find(r.Paths.Run())
	return run
}

// LastToken returns the highest number that the fencing tokens of the group have had, and which one it is: a term, or
// with slots an epoch. It is 0 if none is known. A group that is created later begins with [FirstTerm]: unless that is
// higher, its tokens may be the same.
func (r *Remains) LastToken() (n int64, of string) {
	of = "term"
	for _, p := range r.slotPaths(MaxSlots) {
		data, stat, exists := r.find(p.Elected())
		s := Snapshot{Fence: r.fence(p), Elected: ReadStored[Elected](p.Elected(), data, stat, exists)}
		n = max(n, s.HighestTerm())
	}
	if s := r.slots(); s.Readable() && s.Record.Epoch > n {
		return s.Record.Epoch, "epoch"
	}
	return n, of
}

// Describe returns what the group has been, for people.
func (r *Remains) Describe() (lines []string) {
	if len(r.Znodes) > 0 {
		lines = append(lines, fmt.Sprintf("%s and the %d znodes below it", r.Paths.Root, len(r.Znodes)-1))
	}
	switch {
	case r.Name == nil:
	case len(r.Znodes) == 0:
		lines = append(lines, fmt.Sprintf("%s, the record of its root %s, which does not exist any more", r.Name.Path,
			r.Paths.Root))
	default:
		lines = append(lines, r.Name.Path+", the record of its root")
	}
	for _, p := range r.slotPaths(r.slotCount()) {
		if f := r.fence(p); f.Readable() && f.Record.Node != "" {
			of := ""
			if p.Slot != "" {
				of = " of slot " + p.Slot
			}
			lines = append(lines, fmt.Sprintf("the history%s: %s led in term %d, until %s", of, f.Record.Node, f.Record.Term,
				f.Record.Time.UTC().Format("2006-01-02 15:04:05 UTC")))
		}
	}
	return lines
}
