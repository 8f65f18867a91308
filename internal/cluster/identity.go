package cluster

import (
	"errors"
	"fmt"
	"strings"
)

// Identity is the record of a group's name, at [IdentityPath], and of its root, in the data of the root. It keeps hosts
// whose configurations disagree from running two groups with one name, or one group inside another: each would elect a
// leader.
type Identity struct {
	Header
	// Root is the group's root znode.
	Root string    `json:"root"`
	Kind GroupKind `json:"kind"`
	// ID is random, and tells the group from one with the same root on other servers. The record of a name has none,
	// nor has a root that an earlier version has created, until a member has registered.
	ID string `json:"id,omitempty"`
}

// maxGroupID bounds the id of a group, in bytes.
const maxGroupID = 64

// LacksID reports whether read is the record of a root without an id.
func LacksID(znode string, read Stored[Identity]) bool {
	return read.Readable() && read.Record.Root == znode && read.Record.ID == ""
}

// GroupKind is how many leaders a group has.
type GroupKind string

// The kinds of groups.
const (
	KindSingle GroupKind = "single" // one leader
	KindSlots  GroupKind = "slots"  // a leader for each slot (docs/protocol.md, Slots)
)

// IdentityPath returns the znode that records the root of the group name below base, the zookeeper.root of a host.
// Unless configured otherwise, it is the root.
func IdentityPath(base, name string) string { return strings.TrimSuffix(base, "/") + "/" + name }

// ReadIdentity is [ReadStored] for an identity. An empty znode is one that has not been recorded yet: then Exists is
// set, and the record is zero.
func ReadIdentity(path string, data []byte, stat Stat, exists bool) Stored[Identity] {
	if exists && len(data) == 0 {
		return Stored[Identity]{Exists: true, Stat: stat}
	}
	return ReadStored[Identity](path, data, stat, exists)
}

// CheckIdentity returns an error unless read, the znode at path, permits a group with that root and of that kind. A
// group that has not been recorded yet is permitted.
func CheckIdentity(path, root string, kind GroupKind, read Stored[Identity]) error {
	rec := read.Record
	switch {
	case read.Err != nil:
		return read.Err
	case rec.Root == "":
		return nil
	case rec.Kind != KindSingle && rec.Kind != KindSlots:
		return fmt.Errorf("znode %s records a group of the kind %q, which this zkelectd does not know: "+
			"upgrade this host", path, rec.Kind)
	case rec.Root != root:
		return fmt.Errorf("znode %s says that the group's root is %s, but the configuration of this host says %s: "+
			"hosts that disagree would "+
			"elect two leaders; correct zookeeper.root on this host or on the others", path, rec.Root, root)
	case rec.Kind != kind && rec.Kind == KindSlots:
		return fmt.Errorf("znode %s records a group with slots, but the configuration of this host has none: hosts "+
			"that disagree would do the "+
			"same work twice; set slots.count on this host, or choose another name or zookeeper.root for a group "+
			"with one leader", path)
	case rec.Kind != kind:
		return fmt.Errorf("znode %s records a group with one leader, but the configuration of this host has slots: "+
			"hosts that disagree would do "+
			"the same work twice; remove slots on this host, or choose another name or zookeeper.root for a "+
			"group with slots", path)
	}
	return nil
}

func (i *Identity) validate(Stat) error {
	if !strings.HasPrefix(i.Root, "/") {
		return fmt.Errorf("root %q is not the path of a znode", i.Root)
	}
	switch {
	case i.Kind == "":
		return errors.New("kind is missing")
	case len(i.ID) > maxGroupID:
		return fmt.Errorf("id has %d bytes, more than %d", len(i.ID), maxGroupID)
	}
	return nil
}
