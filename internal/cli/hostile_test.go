package cli

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// large is just below the limit of a server.
const large = 1<<20 - 4096

// Records that an unauthorized client may write into an open tree.
var hostile = map[string]string{
	"a megabyte of text":        `{"v":1,"reason":"` + strings.Repeat("x", large-100) + `"}`,
	"deep":                      `{"v":1,"junk":` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + `}`,
	"as deep as can be read":    `{"v":1,"junk":` + strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990) + `}`,
	"texts of NULs and escapes": strings.ReplaceAll(`{"v":1,"id":"@","node":"@","site":"@","incarnation":"@-n_0000000001","host":"@","reason":"@","type":"@"}`, "@", `\u0000\u001b[2J`),
}

// Whatever the records contain, the group keeps electing, and names the damaged znode.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	for name, data := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			// A valid record with false content is noticed when the takeover is overdue.
			f.joinWith("election: {exclusion: 1s}\nhooks: {timeout: 1ms}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms, ready: {timeout: 1s}}\n", "a", "b")
			f.waitForWork("a")
			vandal, _, err := zk.Connect(f.servers, 10*time.Second, zk.WithLogInfo(false))
			if err != nil {
				t.Fatal(err)
			}
			defer vandal.Close()
			deep := name == "as deep as can be read" // a record like any other
			for _, path := range []string{f.paths.Elected(), f.paths.Leader(), f.paths.Current()} {
				if _, err := vandal.Set(path, []byte(data), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
					t.Fatal(err)
				}
				f.leadership("a leadership after " + path + " was damaged")
			}
			for _, path := range []string{f.paths.Policy(), f.paths.Control(), f.paths.History()} {
				if _, err := vandal.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					t.Fatal(err)
				}
				if _, err := vandal.Set(path, []byte(data), -1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := vandal.Create(f.paths.Node("evil"), []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			if _, err := vandal.Create(f.paths.Election()+"/evil-0000000000000001-n_", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			g := f.until("the forged member is seen", func(g status.Group) bool { return len(g.Members) == 3 && g.Leader != "" })
			before := f.snapshot().Members
			syscall.Kill(f.daemon(g.Leader), syscall.SIGKILL)
			f.eventually("the leader registers again", func() bool { // also if its guard leaves the session to expire
				now := f.snapshot().Members
				at := slices.IndexFunc(now, func(m cluster.Member) bool { return m.ID == g.Leader })
				return at >= 0 && !slices.ContainsFunc(before, func(m cluster.Member) bool { return m.Name == now[at].Name })
			}, f.table)
			if !deep {
				f.logsZnode(f.paths.Policy())
			}
			f.eventually("there is a leader", func() bool { s := f.snapshot(); return s.Ready() }, f.table)
			f.eventually("all are back", func() bool { return len(f.snapshot().Members) == 3 }, f.table)
			for _, p := range f.daemons {
				if strings.Contains(p.Output(), "leader=evil") {
					t.Error("the forged member was elected")
				}
			}
			f.checkInvariants()
		})
	}
}

func (f *fleet) table() string { return status.Of(f.groupName(), f.paths.Root, f.snapshot()).Table() }

// logsZnode waits until a daemon logs the path of a znode.
func (f *fleet) logsZnode(path string) {
	f.t.Helper()
	f.eventually("a log that names znode "+path, func() bool {
		for _, p := range f.daemons {
			if strings.Contains(p.Output(), path+" ") || strings.Contains(p.Output(), path+"\n") {
				return true
			}
		}
		return false
	})
}

// A daemon that may not write a decision logs the znode and what to do.
func TestRefusedDecisionIsLogged(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	operator, _, err := zk.Connect(f.servers, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if err := operator.AddAuth("digest", []byte("operator:"+password)); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.SetACL(f.paths.Elected(), append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...), -1); err != nil {
		t.Fatal(err)
	}
	f.submit("move", "--to", "b")
	elector := f.until("a status", func(status.Group) bool { return true }).Elector
	f.logged(elector, "set "+f.paths.Elected()+": not permitted by the znode's ACL (this session has no credentials: set zookeeper.auth.file, zookeeper.sasl or zookeeper.tls.cert)")
	if _, err := operator.SetACL(f.paths.Elected(), zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	f.until("b leads once it may", leads("b"))
	if n := strings.Count(f.daemons[elector].Output(), "ZooKeeper refuses the elector's decision"); n != 1 {
		t.Errorf("it logs it %d times", n)
	}
	f.checkInvariants()
}
