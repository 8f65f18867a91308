package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Paths knows where everything lies below one root: the only place that does (docs/protocol.md, Znodes).
type Paths struct {
	// Root is an absolute znode path without a trailing slash, such as /cluster. One root is one group.
	Root string
}

// Nodes is the parent of the daemons' ephemerals.
func (p Paths) Nodes() string { return p.Root + "/nodes" }

// Node is the ephemeral that says who and where the daemon id is.
func (p Paths) Node(id string) string { return p.Root + "/nodes/" + id }

// Election is the parent of the incarnations.
func (p Paths) Election() string { return p.Root + "/election" }

// Incarnation is the ephemeral-sequential znode with that name.
func (p Paths) Incarnation(name string) string { return p.Root + "/election/" + name }

// Leader is the fence: its data says who last held leadership and how that ended.
func (p Paths) Leader() string { return p.Root + "/leader" }

// Elected is the elector's decision.
func (p Paths) Elected() string { return p.Root + "/leader/elected" }

// Current is the leader's ephemeral.
func (p Paths) Current() string { return p.Root + "/leader/current" }

// Policy is the policy in force in the whole group.
func (p Paths) Policy() string { return p.Root + "/policy" }

// Control holds what operators have asked for.
func (p Paths) Control() string { return p.Root + "/control" }

// History holds the last terms.
func (p Paths) History() string { return p.Root + "/history" }

// Skeleton lists the persistent znodes that must exist before a daemon registers, parents first.
func (p Paths) Skeleton() []string {
	var all []string
	for i, c := range p.Root {
		if c == '/' && i > 0 {
			all = append(all, p.Root[:i])
		}
	}
	return append(all, p.Root, p.Nodes(), p.Election(), p.Leader())
}

// Lasting lists every persistent znode that the group has or may have, parents first. Further ones are the ephemerals:
// current, and the children of nodes and election.
func (p Paths) Lasting() []string {
	return []string{p.Root, p.Nodes(), p.Election(), p.Leader(), p.Elected(), p.Policy(), p.Control(), p.History()}
}

// ACLProbe is the beginning of an ephemeral's name by which 'zkelectd acl apply' tries an ACL before it sets it.
func (p Paths) ACLProbe() string { return p.Root + "/acl-probe-" }

const sequenceMark = "-n_"

// Incarnation is one registration of a daemon: the name of its ephemeral-sequential znode, which is never reused.
type Incarnation struct {
	// Name is <id>-n_<seq>, as below election.
	Name string
	// ID is the daemon's.
	ID string
	// Seq is the sequence that ZooKeeper gave. It is 32 bits wide and wraps.
	Seq int32
}

// ParseIncarnation takes the name of a child of election apart. The error says why a foreign znode is not one.
func ParseIncarnation(name string) (Incarnation, error) {
	i := strings.LastIndex(name, sequenceMark)
	if i <= 0 {
		return Incarnation{}, fmt.Errorf("%q is not an incarnation: want <id>%s<sequence>", name, sequenceMark)
	}
	digits := name[i+len(sequenceMark):]
	seq, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) < 10 || digits[0] == '+' {
		return Incarnation{}, fmt.Errorf("%q is not an incarnation: %q is no ZooKeeper sequence", name, digits)
	}
	return Incarnation{Name: name, ID: name[:i], Seq: int32(seq)}, nil
}

// OldestFirst sorts a list by the sequence of its incarnations: the first is the elector. The counter is 32 bits wide and
// wraps, so all sequences are on a circle, and the oldest comes after the widest gap. Every daemon that sees the same names gets
// the same order, even if forged sequences are all over the circle; comparing two by their difference would be no order then.
func OldestFirst[T any](list []T, incarnation func(T) Incarnation) {
	seq := func(i int) uint32 { return uint32(incarnation(list[i]).Seq) }
	slices.SortFunc(list, func(a, b T) int {
		x, y := incarnation(a), incarnation(b)
		return cmp.Or(cmp.Compare(uint32(x.Seq), uint32(y.Seq)), cmp.Compare(x.Name, y.Name))
	})
	first, widest := 0, uint32(0)
	for i := range list {
		gap := seq(i) - seq((i+len(list)-1)%len(list)) // over the wrap, for the first
		if gap > widest {
			first, widest = i, gap
		}
	}
	sorted := slices.Concat(list[first:], list[:first])
	copy(list, sorted)
}

// ParseIncarnations turns the children of election into incarnations, oldest first. Foreign names are left out and
// returned, so that they can be reported.
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
