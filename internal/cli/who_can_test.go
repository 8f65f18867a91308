package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/zk"
)

// daemonUser runs the daemons in one of the groups, and childUser the work in another; root runs the rest.
const (
	daemonUser = 4711
	childUser  = 4712
)

// The columns of the table in SECURITY.md.
const (
	toRead    = "read"
	toRunCode = "run code as another user or on another host"
	toDouble  = "make two leaders work"
	toMove    = "move the leader"
	toStop    = "stop the group"
)

// columns are in the order of the attempts, of which the last ones do the most damage.
var columns = []string{toRead, toRunCode, toDouble, toMove, toStop}

// attempts maps a column to a function that tries it, and reports whether that succeeded.
type attempts map[string]func() bool

// attemptsOf starts a group for a row of the table, and returns what its attacker tries there.
var attemptsOf = map[string]func(t *testing.T) attempts{
	"anyone who can reach the HTTP port": func(t *testing.T) attempts {
		return newGroup(t, setup{}).overHTTP("")
	},
	"anyone who can reach ZooKeeper's client port": func(t *testing.T) attempts {
		return newGroup(t, setup{timeout: "4s"}).atTheClientPort()
	},
	"a member host": func(t *testing.T) attempts {
		return newGroup(t, setup{stop: "2s"}).withPassword(0)
	},
	"the daemon's user, or a child that runs as that user": func(t *testing.T) attempts {
		return newGroup(t, setup{user: daemonUser, stop: "2s"}).withPassword(daemonUser)
	},
	"the child's user, if it is another one": func(t *testing.T) attempts {
		return newGroup(t, setup{child: fmt.Sprintf("setpriv, --reuid=%d, --regid=%[1]d, --clear-groups, ", childUser)}).asChild()
	},
	"a token holder": func(t *testing.T) attempts {
		return newGroup(t, setup{}).overHTTP(nightsToken)
	},
}

// The attempts agree with each cell of the table in SECURITY.md.
func TestWhoCanDoWhat(t *testing.T) {
	t.Parallel()
	table := whoCanDoWhat(t)
	for who := range attemptsOf {
		if table[who] == nil {
			t.Errorf("SECURITY.md does not say what %s can do", who)
		}
	}
	for who, cells := range table {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			if attemptsOf[who] == nil {
				t.Fatal("there are no attempts for this row")
			}
			tries := attemptsOf[who](t)
			for _, column := range columns {
				cell := cells[column]
				answer, _, _ := strings.Cut(strings.FieldsFunc(cell+" ", func(r rune) bool { return r == ':' || r == ' ' })[0], "[^")
				try := tries[column]
				switch elsewhere := strings.Contains(cell, "[^"); {
				case answer != "yes" && answer != "no":
					t.Errorf("%s: %q is neither yes nor no", column, cell)
				case try == nil && !elsewhere:
					t.Errorf("%s: no attempt, and no footnote that names a test", column)
				case try != nil:
					if can := try(); can != (answer == "yes") {
						t.Errorf("%s: SECURITY.md says %q, and the attempt shows %t", column, cell, can)
					}
				}
			}
		})
	}
}

// whoCanDoWhat returns the table's cells by row and column.
func whoCanDoWhat(t *testing.T) map[string]map[string]string {
	t.Helper()
	_, section, _ := strings.Cut(read("../../SECURITY.md"), "## Who can do what\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var head []string
	table := make(map[string]map[string]string)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) != 1+len(columns) || strings.HasPrefix(cells[0], "---"):
		case head == nil:
			head = cells
		default:
			table[cells[0]] = make(map[string]string)
			for i, cell := range cells {
				table[cells[0]][head[i]] = cell
			}
		}
	}
	for _, column := range columns {
		if !slices.Contains(head, column) {
			t.Errorf("the table has no column %q, but %q", column, head)
		}
	}
	return table
}

// setup has the settings of a group that differ from the default.
type setup struct {
	user          uint32 // of the daemons
	timeout, stop string // of the session (30s), and stop_timeout (1s)
	child         string // the beginning of the child's command
}

// newGroup starts a and b as the packages set them up: a private tree, and tokens for requests over HTTP. The work
// ignores SIGTERM.
func newGroup(t *testing.T, s setup) *fleet {
	t.Helper()
	dir := testhelper.PublicDir(t)
	f := newClosedFleet(t, zk.ACLPrivate)
	if err := store.Init(t.Context(), f.session, f.paths, "the test"); err != nil {
		t.Fatal(err)
	}
	f.dir = dir
	script := `cp /proc/$PPID/exe zkelectd && ln zkelectd ledger-child && : >ledger && chmod 0666 ledger`
	if out, err := f.as(0, "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	owned := func(name, text string) string {
		path := filepath.Join(dir, name)
		put(t, path, text)
		return path
	}
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + owned("auth", "zkelectd:"+password), "PATH=" + dir + ":" + os.Getenv("PATH")}
	web := f.tokens("night-shift:" + nightsToken + "\n")
	for i, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("zookeeper: {session_timeout: %s, acl: private}\nhttp: {listen: '127.0.0.1:0', %s}\n"+
			"policy: {failback: manual}\nchild: {command: [%s%s/ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}, "+
			"stop_timeout: %s, max_restarts: 0}\n", cmp.Or(s.timeout, "30s"), web, s.child, dir, cmp.Or(s.stop, "1s")))
	}
	if out, err := f.as(0, "chown", "-R", fmt.Sprint(s.user), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, id := range []string{"a", "b"} {
		f.startCommand(id, f.as(s.user, "zkelectd", "run", "--config", f.file(id)))
		f.until("a leads", leads("a"))
	}
	f.waitForBoth()
	f.waitForWork("a")
	return f
}

// as returns a command that runs as a user on the members' host.
func (f *fleet) as(user uint32, name string, args ...string) *exec.Cmd {
	if path := filepath.Join(f.dir, name); exists(path) {
		name = path
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = f.dir
	cmd.Env = os.Environ()
	if user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	return cmd
}

// may reports whether any of some shell commands succeeds for a user.
func (f *fleet) canRun(user uint32, scripts ...string) bool {
	succeeded := false
	for _, script := range scripts {
		out, err := f.as(user, "sh", "-c", script).CombinedOutput()
		f.t.Logf("%d: %s: %v %s", user, script, err, out)
		succeeded = succeeded || err == nil
	}
	return succeeded
}

func (f *fleet) waitForBoth() {
	f.t.Helper()
	f.until("both have joined", func(g status.Group) bool {
		return len(g.Members) == 2 && g.State == string(cluster.CurrentReady) && g.Next == ""
	})
}

// pairing returns the leader and the other node.
func (f *fleet) pairing() (leader, other string) {
	f.t.Helper()
	f.waitForBoth()
	if f.snapshot().Elected.Record.Node == "a" {
		return "a", "b"
	}
	return "b", "a"
}

// attempt calls do, which should make the other node lead. If it succeeds, attempt waits for that, and reports whether two
// leaders worked at once.
func (f *fleet) attempt(do func(leader, other string) bool) (moved, two bool) {
	leader, other := f.pairing()
	child := f.child(leader)
	if !do(leader, other) {
		return false, false
	}
	f.until(other+" leads", leads(other))
	f.waitForWork(other)
	f.waitForDeath(child)
	all := ledger(f.t, f.ledgerFile())
	for i := 1; i < len(all); i++ {
		two = two || all[i].start < all[i-1].end
	}
	return true, two
}

// pausedHard ends the leader while the group is paused hard, and waits until the elector refuses to elect another.
func (f *fleet) pausedHard(end func(leader string)) bool {
	leader, _ := f.pairing()
	child := f.child(leader)
	end(leader)
	f.waitForDeath(child)
	f.eventually("no leader is elected", func() bool {
		return strings.Contains(f.daemons["a"].Output()+f.daemons["b"].Output(), "there is no election until "+f.command("'zkelectd resume'"))
	})
	return true
}

// overHTTP returns the attempts of a client of http.listen with a token, or without one.
func (f *fleet) overHTTP(token string) attempts {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	give := func(path, body string) bool {
		code, answer := post(client, "http://"+f.address("b")+path, token, body)
		f.t.Log(path, body, code, strings.TrimSpace(answer))
		return code/100 == 2
	}
	move := func(_, other string) bool { return give("/v1/move", fmt.Sprintf(`{"node":%q,"force":true}`, other)) }
	return attempts{
		toRead: func() bool { return f.canRead(client) },
		toRunCode: func() bool {
			marker := filepath.Join(f.dir, "marker")
			done := give("/v1/reelect", fmt.Sprintf(`{"command":["touch",%q]}`, marker))
			for _, path := range []string{"/v1/policy", "/v1/config", "/v1/reload", "/v1/run"} {
				done = give(path, "") || done
			}
			give("/v1/pause", fmt.Sprintf(`{"reason":"$(touch %s); touch %[1]s"}`, marker))
			give("/v1/resume", fmt.Sprintf(`{"reason":"$(touch %s); touch %[1]s"}`, marker))
			return done || exists(marker)
		},
		toDouble: func() bool { _, two := f.attempt(move); return two },
		toMove:   func() bool { moved, _ := f.attempt(move); return moved },
		toStop: func() bool {
			return give("/v1/pause", `{"hard":true}`) && f.pausedHard(func(leader string) { f.daemons[leader].Signal(syscall.SIGTERM) })
		},
	}
}

func (f *fleet) canRead(client *http.Client) bool {
	resp, err := client.Get("http://" + f.address("b") + "/v1/status")
	if err != nil {
		f.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
