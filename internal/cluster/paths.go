package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Paths returns the paths of the znodes under one root. No other code builds them (docs/protocol.md, Znodes).
type Paths struct {
	// Root is an absolute path without a trailing slash, such as /cluster. Each group has its own root.
	Root string
	// Slot is the slot, such as 3, whose leadership this is about; empty in a group with one leader. The slots of a
	// group share their members, policy and control (docs/protocol.md, Slots).
	Slot string
}

// OfSlot returns the paths of the i-th slot of the group.
func (p Paths) OfSlot(i int) Paths { return Paths{Root: p.Root, Slot: strconv.Itoa(i)} }

// Slots returns the znode that says how many slots the group has. The slots are below it.
func (p Paths) Slots() string { return p.Root + "/slots" }

// Nodes returns the parent of the nodes' ephemerals.
func (p Paths) Nodes() string { return p.Root + "/nodes" }

// Node returns the ephemeral that describes the node with that id.
func (p Paths) Node(id string) string { return p.Root + "/nodes/" + id }

// Election returns the parent of the incarnations.
func (p Paths) Election() string { return p.Root + "/election" }

// Incarnation returns the ephemeral sequential znode with that name.
func (p Paths) Incarnation(name string) string { return p.Root + "/election/" + name }

// Leader returns the znode whose data is the fence: who held leadership last, and how that ended.
func (p Paths) Leader() string {
	if p.Slot != "" {
		return p.Slots() + "/" + p.Slot
	}
	return p.Root + "/leader"
}

// Elected returns the znode of the elector's decision.
func (p Paths) Elected() string { return p.Leader() + "/elected" }

// Current returns the leader's ephemeral.
func (p Paths) Current() string { return p.Leader() + "/current" }

// Heir returns the znode of the heir, where elected no longer names the right one.
func (p Paths) Heir() string {
	if p.Slot != "" {
		return p.Leader() + "/heir"
	}
	return p.Root + "/heir"
}

// Policy returns the znode of the policy in force in the group.
func (p Paths) Policy() string { return p.Root + "/policy" }

// Control returns the znode of the operators' requests.
func (p Paths) Control() string { return p.Root + "/control" }

// Roster returns the znode of the nodes that are members or have been.
func (p Paths) Roster() string { return p.Root + "/roster" }

// History returns the znode of the last terms.
func (p Paths) History() string {
	if p.Slot != "" {
		return p.Leader() + "/history"
	}
	return p.Root + "/history"
}

// Run returns the znode of the last run of a job, see [Run].
func (p Paths) Run() string { return p.Root + "/run" }

// FailsafeKeys returns the znode of the keys with which members authenticate the messages of failsafe mode, see
// [FailsafeKeys]. The slots of a group share it.
func (p Paths) FailsafeKeys() string { return p.Root + failsafeKeys }

const failsafeKeys = "/failsafe-keys"

// IsSecret reports whether only members may read the znode at path, whatever others may read of the group.
func IsSecret(path string) bool { return strings.HasSuffix(path, failsafeKeys) }

// Fencings returns the znode of what people have fenced, see [Fencings]. The slots of a group share it.
func (p Paths) Fencings() string { return p.Root + "/fencings" }

// RollCall returns the znode of the last roll call, see [RollCall]. Groups with slots have none.
func (p Paths) RollCall() string { return p.Root + "/rollcall" }

// Skeleton returns the persistent znodes that must exist before a daemon registers, parents first.
func (p Paths) Skeleton() []string {
	all := append(Ancestors(p.Root), p.Root, p.Nodes(), p.Election())
	if p.Slot != "" {
		all = append(all, p.Slots())
	}
	return append(all, p.Leader())
}

// Ancestors returns the znodes above the one at path, the highest first, without "/".
func Ancestors(path string) []string {
	var all []string
	for i, c := range path {
		if c == '/' && i > 0 {
			all = append(all, path[:i])
		}
	}
	return all
}

// Persistent returns every persistent znode that the group has or may have, parents first, and with a slot those of
// that slot only. The other znodes are ephemerals: current, and the children of nodes and election.
func (p Paths) Persistent() []string {
	all := []string{p.Root, p.Nodes(), p.Election()}
	if p.Slot != "" {
		all = append(all, p.Slots())
	}
	all = append(all, p.Leader(), p.Elected(), p.Policy(), p.Control(), p.Roster(), p.History(), p.Heir())
	if p.Slot == "" {
		all = append(all, p.Run(), p.FailsafeKeys(), p.Fencings(), p.RollCall())
	}
	return all
}

// ACLProbe returns the prefix of the ephemerals with which 'zkelectd acl --apply' tries an ACL before it sets it.
func (p Paths) ACLProbe() string { return p.Root + "/acl-probe-" }

// Incarnation identifies one registration of a node: the name of its ephemeral sequential znode. The name contains the
// random id of the instance, so it is never used again, even if the sequence begins again: after election was deleted,
// in a copy of the data, or at the end of the counter. Checks inside transactions see names only.
type Incarnation struct {
	// Name is <id>-<instance>-n_<seq>, the name of the child of election.
	Name string
	// ID is the node's id.
	ID string
	// Seq is the sequence number that ZooKeeper assigned. It has 32 bits.
	Seq int32
}

// sequenceEnd is where the sequence numbers below election end: ZooKeeper gives this one to every later registration.
const sequenceEnd = math.MaxInt32

// AtSequenceEnd reports whether the counter below election has reached its end, so that later incarnations are not in
// order.
func (i Incarnation) AtSequenceEnd() bool { return i.Seq == sequenceEnd || i.Seq < 0 }

const sequenceMark = "-n_"

// instanceDigits is the length of the id of an instance.
const instanceDigits = 16

// NewInstance returns the id of an instance from 64 random bits, which must be new for each instance.
func NewInstance(random uint64) string { return fmt.Sprintf("%0*x", instanceDigits, random) }

// incarnationPrefix returns the name of the node's incarnation up to the sequence number.
func (n *Node) incarnationPrefix() string { return n.ID + "-" + n.Instance + sequenceMark }

// Registered reports whether i is the incarnation that was registered together with the record.
func (n *Node) Registered(i Incarnation) bool {
	return i.ID == n.ID && strings.HasPrefix(i.Name, n.incarnationPrefix())
}

// ParseIncarnation parses the name of a child of election. The error says why a foreign znode is not an incarnation.
func ParseIncarnation(name string) (Incarnation, error) {
	i := strings.LastIndex(name, sequenceMark)
	dash := i - instanceDigits - 1
	if dash <= 0 || name[dash] != '-' || strings.Trim(name[dash+1:i], "0123456789abcdef") != "" {
		return Incarnation{}, fmt.Errorf("%q is not an incarnation: want <id>-<%d hexadecimal digits>%s<sequence>",
			name, instanceDigits, sequenceMark)
	}
	digits := name[i+len(sequenceMark):]
	seq, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) < 10 || digits[0] == '+' {
		return Incarnation{}, fmt.Errorf("%q is not an incarnation: %q is not a ZooKeeper sequence number", name, digits)
	}
	return Incarnation{Name: name, ID: name[:dash], Seq: int32(seq)}, nil
}

// OldestFirst sorts a list by the sequence numbers of its incarnations; the first one is the elector (docs/protocol.md,
// Electing). Numbers are compared as unsigned ones, since those after the end of the counter may be negative. Equal
// numbers, as at the end of the counter, are sorted by name: daemons that see the same names get the same order.
func OldestFirst[T any](list []T, incarnation func(T) Incarnation) {
	slices.SortFunc(list, func(a, b T) int {
		x, y := incarnation(a), incarnation(b)
		return cmp.Or(cmp.Compare(uint32(x.Seq), uint32(y.Seq)), cmp.Compare(x.Name, y.Name))
	})
}

// ParseIncarnations parses the children of election and returns the incarnations, oldest first, and the foreign names,
// so that they can be reported.
func ParseIncarnations(names []string) (in []Incarnation, foreign []string) {
	in = make([]Incarnation, 0, len(names))
	for _, name := range names {
		i, err := ParseIncarnation(name)
		if err != nil {
			foreign = append(foreign, name)
			continue
		}
		in = append(in, i)
	}
	OldestFirst(in, func(i Incarnation) Incarnation { return i })
	return in, foreign
}
