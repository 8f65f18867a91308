// Package agent is one daemon's part of failsafe mode: it keeps what the daemon has promised, answers the leaders of
// its groups, asks the other daemons for promises, and tries regularly whether they would answer (docs/failsafe.md).
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/sys/statedir"
	"zkelectd/internal/transition/failsafe"
)

// Options configure an [Agent].
type Options struct {
	// Node is the id of this daemon.
	Node string
	// StateDir is the directory for what must survive a restart of the host.
	StateDir string
	// Clock returns the time on CLOCK_BOOTTIME.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Agent is safe for concurrent use. The caller must close it.
type Agent struct {
	opt      Options
	dir      *statedir.Dir
	promises *failsafe.Promises
	client   *peer.Client
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	poke     chan struct{} // a probe of ZooKeeper may be wanted
	try      chan struct{} // the members have changed

	storing sync.Mutex // held while the state is written
	stored  failsafe.State

	mu      sync.Mutex
	budget  cluster.Budget
	probe   func(context.Context) error  // nil while there is no session
	groups  map[string]*Group            // by root; never changed, only replaced
	results map[string]map[string]string // by root and node; never changed, only replaced
	senders map[destination]*sender
	granted map[string]time.Duration // by root: when this daemon last promised something
	asked   map[asked]string         // why a member has not answered in the last round; empty if it has
	// unlocked is set if another process may use the state directory.
	unlocked bool
}

// Group is what the agent knows of a group. It outlives sessions: ZooKeeper may not be there when it is needed.
type Group struct {
	Paths cluster.Paths
	// Enabled reports whether the policy in force, or that of this host if none is known, enables failsafe mode.
	Enabled bool
	// Self is the incarnation of this host; empty if it is not a member.
	Self string
	// Secrets are the keys of the group; SecretsErr is why there are none.
	Secrets    [][]byte
	SecretsErr error
	// Exposed says that others can read the keys, and what to do; empty if they cannot.
	Exposed string
	// Peers are the other members.
	Peers []Peer
}

// Peer is another member of a group.
type Peer struct {
	ID, Incarnation string
	// Failsafe is nil if the node takes no part in failsafe mode.
	Failsafe *cluster.FailsafeNode
}

const stateFile = "failsafe.json"

// Open locks the state directory, and reads the state or creates the first one.
func Open(opt Options) (*Agent, error) {
	dir, err := statedir.Open(opt.StateDir)
	if err != nil {
		return nil, err
	}
	state, err := readState(dir)
	if err != nil {
		dir.Close()
		return nil, err
	}
	a := &Agent{
		opt: opt, dir: dir, stored: state, poke: make(chan struct{}, 1), try: make(chan struct{}, 1),
		client:   peer.NewClient(opt.Node),
		promises: failsafe.NewPromises(failsafe.Options{State: state, Start: opt.Clock()}),
		groups:   make(map[string]*Group), results: make(map[string]map[string]string),
		senders: make(map[destination]*sender), granted: make(map[string]time.Duration), asked: make(map[asked]string),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.running.Go(a.runProbes)
	a.running.Go(a.runTries)
	return a, nil
}

// readState reads the state. Without a file this is another state directory than any before, so it gets a new key. A
// file that cannot be read is not replaced: it may say what the daemon has promised.
func readState(dir *statedir.Dir) (failsafe.State, error) {
	path := dir.Path(stateFile)
	data, err := dir.Read(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		state := failsafe.State{Key: rand.Text()}
		return state, dir.Write(stateFile, state.Encode())
	}
	if err != nil {
		return failsafe.State{}, err
	}
	state, err := failsafe.DecodeState(data)
	if err != nil {
		return state, fmt.Errorf("%s is %w: if it cannot be restored, remove it; this host then counts as another "+
			"one, which has promised nothing", path, err)
	}
	return state, nil
}

// TookPart reports whether the daemon with that state directory may have taken part in failsafe mode in a group. It
// creates and locks nothing. With an error that is not known: a directory that this daemon may not read can be its own
// nevertheless.
func TookPart(dir, group string) (bool, error) {
	data, err := statedir.Read(dir, stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	state, err := failsafe.DecodeState(data)
	if err != nil {
		return false, fmt.Errorf("%s is %w", filepath.Join(dir, stateFile), err)
	}
	return state.TookPart(group), nil
}

// TookPart is the function of that name for the state of a running daemon.
func (a *Agent) TookPart(group string) bool {
	a.storing.Lock()
	defer a.storing.Unlock()
	return a.stored.TookPart(group)
}

// TakePart stores that the daemon takes part in a group. It must do so before it promises anything there.
func (a *Agent) TakePart(group string) error {
	return a.Remember(failsafe.State{Groups: []string{group}})
}

// Close ends everything, and unlocks the state directory. No request may be served any more.
func (a *Agent) Close() {
	a.mu.Lock() // Send starts nothing after this
	a.cancel()
	a.mu.Unlock()
	a.running.Wait()
	a.client.Close()
	a.dir.Close()
}

// Promises returns what the daemon has promised.
func (a *Agent) Promises() *failsafe.Promises { return a.promises }

// Key identifies the state directory.
func (a *Agent) Key() string { return a.promises.Key() }

// Remember stores a state: when it returns nil, the state survives a crash of the host. States may come in any order.
func (a *Agent) Remember(next failsafe.State) error {
	a.storing.Lock()
	defer a.storing.Unlock()
	merged := a.stored.Merge(next)
	if merged.Equal(a.stored) {
		return nil
	}
	if err := a.dir.Write(stateFile, merged.Encode()); err != nil {
		return err
	}
	a.stored = merged
	return nil
}

// Veto makes the daemon refuse every later promise for a term of a group, and stores that. While the daemon is bound,
// it returns until when instead, and changes nothing: whoever still wants the veto then must ask again, as the leader
// may have been heard meanwhile.
func (a *Agent) Veto(group string, term int64) (bound time.Duration, err error) {
	if bound = a.promises.Veto(a.opt.Clock(), group, term); bound != 0 {
		return bound, nil
	}
	return 0, a.Remember(a.promises.State())
}

// Gone notes that current of a term was seen to be gone.
func (a *Agent) Gone(group string, term int64) { a.promises.Gone(group, term) }

// SetBudget sets the timing of the leases, on which it depends what the daemon may promise.
func (a *Agent) SetBudget(b cluster.Budget) error {
	promised := b
	// leaders know the granted timeout, and the lease may be based on a shorter one
	promised.LeaseWait = max(b.LeaseWait, cluster.LeaseWait(b.Session))
	if next, changed := a.promises.WithWait(promised.LeaseWait); changed {
		if err := a.Remember(next); err != nil {
			return err
		}
	}
	a.promises.SetBudget(promised)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budget = b
	return nil
}

// SetProbe sets what sends a write to ZooKeeper that changes nothing ([cluster.Paths.ProbeTx]); nil while there is no
// session.
func (a *Agent) SetProbe(probe func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.probe = probe
}

// Suspect notes that ZooKeeper may be unreachable.
func (a *Agent) Suspect() {
	a.promises.Suspect()
	wake(a.poke)
}

// wake wakes who waits for a channel with one element.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SetGroup sets what is known of a group.
func (a *Agent) SetGroup(g Group) {
	a.mu.Lock()
	a.groups[g.Paths.Root] = &g
	a.endSenders()
	a.mu.Unlock()
	wake(a.try)
}

// RemoveGroup forgets a group that is no longer configured, or takes no part any more. What was promised in it stays in
// force.
func (a *Agent) RemoveGroup(root string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.groups, root)
	a.results = maps.Clone(a.results)
	delete(a.results, root)
	delete(a.granted, root)
	maps.DeleteFunc(a.asked, func(k asked, _ string) bool { return k.root == root })
	a.endSenders()
}

// group returns what is known of a group; nil if this host does not have it.
func (a *Agent) group(root string) *Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.groups[root]
}

// Handler answers the other daemons.
func (a *Agent) Handler() http.Handler {
	return peer.NewHandler(peer.ServerOptions{Node: a.opt.Node, Secrets: a.secrets, Answer: a.answer})
}
