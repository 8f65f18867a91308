package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/statedir"
	"zkelectd/internal/zk"
)

// joinedRecord says that this host has been in a group, which survives a restart: if the servers lose their data, it
// creates the group again, as a member that runs does. It is a file of the state directory, where there is one.
type joinedRecord struct {
	Root    string   `json:"root"`
	Servers []string `json:"servers"`
	// ID is the group's id.
	ID string `json:"id,omitempty"`
	// Followed are servers that the host has followed the ensemble to.
	Followed []string `json:"followed,omitempty"`
	// Open is set if clients without an identity could change the group.
	Open bool `json:"open,omitempty"`
}

// joinedFile returns the name of the file for a root.
func joinedFile(root string) string { return fmt.Sprintf("joined-%x", sha256.Sum256([]byte(root))) }

// joinedRecord returns what this host records of the resource.
func (r *resource) joinedRecord() joinedRecord {
	last := r.lastJoined()
	return joinedRecord{r.root, slices.Clone(r.host.config().ZooKeeper.Servers), last.ID,
		r.host.following.list(), last.Open}
}

// lastJoined returns what this host knows of the group that it was in last; the zero value if it was in none.
func (r *resource) lastJoined() joinedRecord {
	if known := r.joined.Load(); known != nil {
		return *known
	}
	recorded, _ := r.readJoined() // a damaged record tells nothing: checkJoined returns the error
	return recorded
}

// wasOpen reports whether clients without an identity could change the group when this host was in it last.
func (r *resource) wasOpen() bool { return r.lastJoined().Open }

// newGroupID returns the id for a root that has none, as seen at a server. The servers of the group that this host was
// in get the one that it had there, so that all members agree after a loss of all data.
func (r *resource) newGroupID(server string) string {
	if last := r.lastJoined(); last.ID != "" && slices.Contains(last.Servers, server) {
		return last.ID
	}
	return store.NewGroupID()
}

// checkGroupID returns an error if the root's id, as seen at a server, is not that of the group that this host was
// in: the servers may be those of another ensemble. On its own servers somebody has created the group again. Of
// those, one may be of another ensemble, too, which is what sameEnsemble excludes.
func (r *resource) checkGroupID(ctx context.Context, id, server string,
	sameEnsemble func(context.Context) error) error {
	last := r.lastJoined()
	if last.ID == "" || id == "" || id == last.ID {
		return nil
	}
	if server == "" {
		return fmt.Errorf("%w: the connection to ZooKeeper was lost", cluster.ErrNotSent)
	}
	if slices.Contains(last.Servers, server) {
		err := sameEnsemble(ctx)
		if errors.As(err, new(*zk.EnsembleError)) {
			missing := r.missing()
			missing.Another = fmt.Sprintf("znode %s at %s is the root of the group with the id %s, but this host was "+
				"in the one with the id %s",
				r.root, server, id, last.ID)
			missing.Reason = err
			return &missing
		}
		return err
	}
	remedy := "restart this zkelectd"
	if file := filepath.Join(r.host.opt.StateDir, joinedFile(r.root)); r.host.opt.StateDir != "" {
		remedy = "stop this zkelectd, remove " + file + ", and start it"
	}
	return permanent(fmt.Errorf("znode %s at %s is the root of the group with the id %s, but this host was in the "+
		"one with the id %s on %s: "+
		"correct zookeeper.servers; or, if the group has moved and no member is left there, %s",
		r.root, server, id, last.ID, strings.Join(last.Servers, ", "), remedy))
}

// missing describes the group if there is none.
func (r *resource) missing() store.MissingError {
	e := store.MissingError{Root: r.root, Servers: r.host.config().ZooKeeper.Servers, File: r.host.opt.ConfigFile}
	if !r.host.single() {
		e.Group = r.name
	}
	return e
}

// mayCreate returns nil if this host may create the group, and else why not: it must have been told to, or have been in
// it, on these servers. Of those, one may be of another ensemble, which is what sameEnsemble excludes.
func (r *resource) mayCreate(ctx context.Context, sameEnsemble func(context.Context) error) error {
	if r.host.opt.Create {
		return nil
	}
	err, never := sameEnsemble(ctx), error(nil)
	if r.accepted == 0 {
		never = r.checkJoined()
	}
	var other *zk.EnsembleError
	errors.As(err, &other)
	switch {
	case never != nil && other != nil && len(other.Foreign) > 0:
		return fmt.Errorf("%w, and %w", never, err)
	case never != nil:
		return never // whatever servers answer, init is what helps
	}
	return err
}

// identity returns what this host records of the group, with an id for a root that has none, and the znode below
// which groups are recorded by their names.
func (r *resource) identity(id string) (own cluster.Identity, base string) {
	own, base = cluster.Identity{Root: r.root, Kind: cluster.KindSingle, ID: id}, r.host.config().ZooKeeper.Root
	if r.config().Slots.Enabled() {
		own.Kind = cluster.KindSlots
	}
	if r.host.single() {
		base = path.Dir(r.root)
	}
	return own, base
}

// ensure checks that this host agrees with the others about the group, and creates those persistent znodes of it that
// do not exist. id is for a root that has none. It returns the record of slots; none for a group without slots. The
// error is a [store.MissingError] if there is no group and this host may not create it, and a [group.PermanentError]
// if a retry cannot resolve it.
func (r *resource) ensure(ctx context.Context, s *zk.Session, conn *zk.Group,
	id string) (slots cluster.Stored[cluster.Slots], err error) {
	own, base := r.identity(id)
	err = store.RequireCreated(ctx, conn, own.Kind, r.missing())
	if missing, ok := errors.AsType[*store.MissingError](err); ok {
		switch missing.Reason = r.mayCreate(ctx, s.CheckEnsemble); {
		case missing.Reason == nil:
			r.log.Warn("creating the group, as these servers have none: if they have lost no data, its root or one "+
				"of them is mistyped", "root", r.root)
			err = nil
		case group.IsTransient(missing.Reason):
			err = fmt.Errorf("there is no group at %s, and it is not known yet whether this host may create it: %w",
				r.root, missing.Reason)
		}
	}
	if err != nil {
		return slots, err
	}
	c := r.config()
	switch err = store.EnsureIdentity(ctx, conn, base, r.name, own); {
	case group.IsTransient(err):
		return slots, err
	case err != nil:
		return slots, permanent(err)
	case own.Kind == cluster.KindSingle:
		err = store.EnsureTree(ctx, conn, r.paths())
	default:
		slots, err = store.EnsureSlots(ctx, conn, r.paths(), slotSize(c), c.Node.ID)
	}
	if _, newer := errors.AsType[*cluster.NewerVersionError](err); newer || cluster.IsRefusal(err) {
		err = permanent(err)
	}
	return slots, err
}

// checkJoined returns nil if this host has recorded that it has been in the group, on these servers: one that was
// mistyped since may be of another ensemble, which knows of no group.
func (r *resource) checkJoined() error {
	recorded, err := r.readJoined()
	if err != nil {
		return err
	}
	dir, name := r.host.opt.StateDir, joinedFile(r.root)
	unknown := slices.DeleteFunc(r.joinedRecord().Servers,
		func(s string) bool { return slices.Contains(recorded.Servers, s) })
	if recorded.Root != r.root || len(unknown) > 0 {
		return fmt.Errorf("its record, %s, is of %s on %s", filepath.Join(dir, name), recorded.Root,
			strings.Join(recorded.Servers, ", "))
	}
	return nil
}

// readJoined returns what this host has recorded of the group in its state directory. The error is
// [store.ErrNeverJoined] if that is nothing.
func (r *resource) readJoined() (recorded joinedRecord, err error) {
	dir, name := r.host.opt.StateDir, joinedFile(r.root)
	data, err := statedir.Read(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return recorded, store.ErrNeverJoined
	}
	if err = cmp.Or(err, json.Unmarshal(data, &recorded)); err != nil {
		return joinedRecord{}, fmt.Errorf("its record cannot be read: %s: %w", filepath.Join(dir, name), err)
	}
	return recorded, nil
}

// recordOpen records whether clients without an identity can change the group, as a check has found.
func (r *resource) recordOpen(open bool) {
	if r.wasOpen() != open {
		r.record(func(j *joinedRecord) { j.Open = open })
	}
}

// recordJoined records that this host has been in the group, on the servers of the configuration in force. Without the
// record in the state directory it waits for an operator after a loss of all data, so a failure is no reason not to
// take part. An empty id is not known.
func (r *resource) recordJoined(id string) {
	r.record(func(j *joinedRecord) { j.ID = cmp.Or(id, j.ID) })
}

func (r *resource) record(change func(*joinedRecord)) {
	r.recording.Lock()
	defer r.recording.Unlock()
	now := r.joinedRecord()
	change(&now)
	if before := r.joined.Swap(&now); before == nil || before.ID != now.ID {
		signal(r.host.following.changed)
	}
	dir, name := r.host.opt.StateDir, joinedFile(r.root)
	if _, err := os.Stat(dir); err != nil {
		return // there is none: it is optional without failsafe mode
	}
	data, err := json.Marshal(now)
	if err != nil {
		r.log.Error("cannot record that this host is in the group", "err", err)
		return
	}
	if before, err := statedir.Read(dir, name); err == nil && string(before) == string(data) {
		return
	}
	if err := statedir.Replace(dir, name, data); err != nil {
		r.log.Warn("cannot record that this host is in the group: if the servers lose their data while it is "+
			"stopped, it waits for 'zkelectd init'",
			"dir", dir, "err", err)
	}
}

// A host looks every missingInterval whether a group exists now. One that was never in it leaves a server of another
// ensemble only every strangerInterval: no group waits for it.
const (
	missingInterval  = 5 * time.Second
	strangerInterval = 30 * time.Second
)

// awaitGroup shows that there is no group, and waits until it is time to look again. If a server has said that it is of
// another ensemble than the one that was asked, and no group of this host needs the session, the next one begins at
// another server, which may have the group.
func (m *membership) awaitGroup(missing *store.MissingError) {
	why, pause := missing.Error(), missingInterval
	var other *zk.EnsembleError
	moves := errors.As(missing.Reason, &other) && len(other.Foreign) > 0
	if other != nil {
		why = fmt.Sprint(missing.Another, other.Here, len(other.Doubts), other.Foreign) // its text has ports, which change
	}
	if m.missing != why {
		m.missing = why
		m.resource.setMembership(status.MembershipRefused, missing.Error())
	}
	m.settle()
	if moves && errors.Is(missing.Reason, store.ErrNeverJoined) {
		pause = strangerInterval
	}
	m.await(pause)
	if moves && m.ctx.Err() == nil && !slices.ContainsFunc(m.session.host.resources(), (*resource).takesPart) {
		m.session.host.avoid.Store(&other.Here)
		m.session.end(missing)
	}
}
