package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// estate is several groups below one zookeeper.root, with a member n1 and a member n2 each; n1 leads.
type estate struct {
	*fleet // the first group
	base   string
	names  []string
	fleets map[string]*fleet
}

func newEstate(t *testing.T, names ...string) *estate {
	t.Helper()
	e := &estate{base: fmt.Sprintf("/estates/e%d", groups.Add(1)), names: names, fleets: make(map[string]*fleet)}
	for _, name := range names {
		f := newFleetAt(t, path.Join(e.base, name))
		if err := store.EnsureIdentity(t.Context(), f.session, e.base, name, cluster.Identity{Root: f.paths.Root, Kind: cluster.KindSingle}); err != nil {
			t.Fatal(err)
		}
		e.fleets[name] = f
	}
	e.fleet = e.fleets[names[0]]
	return e
}

func (e *estate) join() {
	e.t.Helper()
	for _, name := range e.names {
		e.fleets[name].join("n1", "n2")
	}
}

// run runs a command on the groups.
func (e *estate) run(args ...string) (string, error) { return e.runWith(nil, args...) }

// runWith is run with environment variables.
func (e *estate) runWith(env []string, args ...string) (string, error) {
	here := []string{"ZKELECTD_ZOOKEEPER_SERVERS=" + strings.Join(e.servers, ","), "ZKELECTD_ZOOKEEPER_ROOT=" + e.base}
	return zkelectdWith(append(here, env...), args...)
}

// prints runs a command that must succeed and print each of the texts.
func (e *estate) prints(args []string, texts ...string) {
	e.t.Helper()
	out, err := e.run(args...)
	for _, text := range texts {
		if err != nil || !strings.Contains(out, text) {
			e.t.Errorf("%v: %v, want %q:\n%s", args, err, text, out)
			return
		}
	}
}

// fails runs a command that must exit with a status and print each of the texts.
func (e *estate) fails(code int, args []string, texts ...string) {
	e.t.Helper()
	out, err := e.run(args...)
	var exit *exec.ExitError
	for _, text := range texts {
		if !asExit(err, &exit) || exit.ExitCode() != code || !strings.Contains(out, text) {
			e.t.Errorf("%v: %v, want exit status %d and %q:\n%s", args, err, code, text, out)
			return
		}
	}
}

func asExit(err error, to **exec.ExitError) bool {
	return errors.As(err, to)
}

func (e *estate) allLedBy(id string) {
	e.t.Helper()
	for _, name := range e.names {
		e.fleets[name].until(id+" leads "+name, leads(id))
	}
}

// Commands act on one of many groups, or show all of them; the configuration names the groups too.
func TestCommandsForManyGroups(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing", "mail")
	e.join()
	e.showMany()
	e.actOnOne()
	e.useGroupFiles()
	e.initializeOne()
}

func (e *estate) actOnOne() {
	e.t.Helper()
	mail := e.fleets["mail"].paths.Root
	e.prints([]string{"status", "-g", "mail"}, "Group    "+mail, "Leader   n1")
	e.prints([]string{"leader", "--group", "mail"}, "n1\n")
	e.prints([]string{"status", "--root", mail}, "Group    "+mail)
	e.prints([]string{"move", "-g", "mail", "--to", "n2", "--wait"}, "n2 (dc1) leads")
	e.prints([]string{"leader", "-g", "billing"}, "n1\n")
	for _, args := range [][]string{{"reelect"}, {"history"}, {"explain"}, {"move", "--to", "n2"}, {"policy"}, {"acl"}, {"repair"}, {"status", "--watch"}} {
		e.fails(2, args, "there are 2 groups below "+e.base+": name one of them with -g (or ZKELECTD_GROUP): billing, mail")
	}
	e.fails(2, []string{"leader"}, "there are 2 groups")
	e.fails(2, []string{"leader", "--is", "--id", "n1"}, "there are 2 groups")
	e.fails(2, []string{"status", "-g", "nothing"}, `there is no group "nothing" below `+e.base+"; there are billing, mail")
	e.fails(2, []string{"status", "-g", "a/b"}, `-g "a/b": must be the name of a group`)
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{[]string{"ZKELECTD_GROUP=mail"}, []string{"leader"}, "n2\n"},
		{[]string{"ZKELECTD_GROUP=mail"}, []string{"leader", "-g", "billing"}, "n1\n"},
		{[]string{"ZKELECTD_GROUP=mail"}, []string{"leader", "--root", e.paths.Root}, "n1\n"},
		// The leader-only work of a group with a configured root has this environment.
		{[]string{"ZKELECTD_GROUP=x", "ZKELECTD_ROOT=" + mail}, []string{"leader"}, "n2\n"},
		{[]string{"ZKELECTD_GROUP=x", "ZKELECTD_ROOT=" + mail, "ZKELECTD_ZOOKEEPER_ROOT=" + mail}, []string{"leader"}, "n2\n"},
	} {
		if out, err := e.runWith(c.env, c.args...); err != nil || out != c.want {
			e.t.Errorf("%v %v: %v, %s", c.env, c.args, err, out)
		}
	}
}

func (e *estate) showMany() {
	e.t.Helper()
	e.prints([]string{"pause", "-g", "mail", "--reason", "maintenance"}, "paused")
	e.prints([]string{"status"}, "GROUP    LEADER  SITE", "billing  n1      dc1", "2/2", "PAUSED, policy does not replace a healthy leader, by ", "(maintenance)", "2 of 2 groups have a READY leader")
	e.prints([]string{"status", "-o", "wide"}, "GROUP    ROOT ", "mail     "+e.fleets["mail"].paths.Root+"     single  n1      dc1")
	out, err := e.run("status", "-o", "json")
	var all groupsStatus
	if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all.Groups) != 2 || all.Groups[1].Name != "mail" || all.Groups[1].Leader != "n1" || all.Groups[1].Eligible != 2 {
		e.t.Errorf("%v: %s", err, out)
	}
	e.prints([]string{"resume", "-g", "mail"}, "ended: the pause")
	e.write(cluster.Op{Kind: cluster.OpCreate, Path: e.base + "/newer", Data: []byte(`{"v":9,"root":"/x"}`)})
	e.fails(2, []string{"status"}, "1 of 3 groups cannot be shown: newer", "upgrade this host", "billing  n1")
	e.fails(2, []string{"status", "-g", "newer"}, "upgrade this host")
	e.write(remove(e.base + "/newer"))
	e.prints([]string{"__complete", "drain", "-g", ""}, "billing\nmail\n:4")
	began := time.Now()
	e.prints([]string{"__complete", "drain", "--zk", "127.0.0.1:1", "-g", ""}, ":4")
	if took := time.Since(began); took > 10*time.Second {
		e.t.Errorf("completion without a server takes %s", took)
	}
}

func TestDrainOfAllGroups(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "billing", "mail", "web")
	e.join()
	e.fleets["web"].configure("other", "dc2", 1, "")
	e.fleets["web"].start("other")
	e.fleets["web"].until("other has joined", func(g status.Group) bool { return len(g.Members) == 3 })

	e.prints([]string{"whatif", "--drain", "n1"}, "billing  n1         n2          dc1", "web      n1         n2          dc1")
	e.prints([]string{"whatif", "--without", "other"}, "billing  n1         n1          dc1   it already leads")
	e.prints([]string{"whatif", "-o", "json"}, `"evenness": {`, `"most": 3`)
	e.fails(3, []string{"whatif", "--without", "missing"}, `no member has the id "missing"`)
	e.fails(1, []string{"whatif", "--all"}, "there would be no leader after a loss, in: billing (site dc1), mail (site dc1)")

	e.fails(3, []string{"drain", "n1"}, "3 of 3 groups change, 3 of them their leader", "nothing was done: confirm it at a terminal, or add --yes")
	e.fails(3, []string{"drain", "missing", "--yes"}, "no group is affected")
	e.prints([]string{"drain", "other", "--yes"}, "1 of 3 groups change, 0 of them their leader; 2 are not affected")
	e.allLedBy("n1")
	e.prints([]string{"drain", "n1", "--yes", "--wait", "--parallel", "1"}, "billing  n1         n2", "3 of 3  ", ": n2 (dc1) leads in term ")
	last := int64(0)
	for _, name := range e.names { // one after the other
		s := e.fleets[name].snapshot()
		if !leads("n2")(status.Of("", "", s)) || s.Elected.Stat.Modified < last {
			t.Errorf("%s: elected %s in %d, before the last one was READY in %d", name, s.Elected.Record.Node, s.Elected.Stat.Modified, last)
		}
		last = s.Current.Stat.Modified
	}
	e.prints([]string{"uncordon", "n1", "--yes", "--wait", "-o", "json"}, `"leader_before": "n2"`, `"leader": "n1"`)
	e.allLedBy("n1")
	e.prints([]string{"pause", "--yes", "--hard"}, "3 of 3  ")
	e.fails(3, []string{"drain", "n1", "--yes"}, "refused: the group is paused hard", "done in 0 groups, not in 3")
	e.prints([]string{"resume", "-g", "mail"}, "ended: the pause")
	e.prints([]string{"resume", "--yes"}, "2 of 3 groups change, 0 of them their leader; 1 are not affected")
}

// If a group's leadership does not move, the groups after it are left alone.
func TestDrainStopsAtAGroupThatDoesNotMove(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "a-stuck", "billing")
	e.fleets["billing"].join("n1", "n2")
	stuck := e.fleets["a-stuck"]
	never := fmt.Sprintf("\nchild: {command: [ledger-child], env: {LEDGER: %s}, stop_timeout: 400ms, ready: {exec: ['false'], timeout: 1h}}\n", stuck.ledgerFile())
	stuck.configure("n1", "dc1", 100, "")
	stuck.start("n1")
	stuck.until("n1 leads", leads("n1"))
	stuck.configure("n2", "dc1", 99, never)
	stuck.start("n2")
	stuck.until("n2 has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	e.fails(5, []string{"drain", "n1", "--yes", "--parallel", "1", "--timeout", "1s"}, "a-stuck (not done after 1s", "billing (not submitted, because leadership has not moved in another group)")
	if g := e.fleets["billing"].until("n1 still leads", leads("n1")); len(g.Requests) > 0 {
		t.Errorf("requests: %v", g.Requests)
	}
}

func (e *estate) initializeOne() {
	e.t.Helper()
	e.prints([]string{"init", "-g", "web"}, "the group "+e.base+"/web is initialized")
	e.prints([]string{"status", "-o", "wide"}, "billing  "+e.base+"/billing", "web      "+e.base+"/web")
	e.prints([]string{"init", "--root", e.base + "-alone"}, "the group "+e.base+"-alone is initialized")
	e.fails(2, []string{"init", "--root", e.base + "/mail/leader"}, "znode "+e.base+"/mail belongs to a group")
}

// useGroupFiles: the configuration names the groups too, those that no daemon has joined included.
func (e *estate) useGroupFiles() {
	e.t.Helper()
	file, dir := filepath.Join(e.dir, "main.yaml"), filepath.Join(e.dir, "groups")
	write := func(name, text string) {
		e.t.Helper()
		mkdir(e.t, dir)
		put(e.t, name, text)
	}
	write(file, fmt.Sprintf("node: {id: n1}\nzookeeper: {servers: [%s], root: %s}\ngroups_dir: %s\ndefaults: {policy: {type: first}}\n", e.servers[0], e.base, dir))
	write(filepath.Join(dir, "billing.yaml"), "policy: {filter: ['member.priority >= 3']}\n")
	write(filepath.Join(dir, "mail.yaml"), "zookeeper: {root: /elsewhere}\n")
	write(filepath.Join(dir, "later.yaml"), "{}\n")
	write(filepath.Join(dir, "wrong.yaml"), "polcy: {}\n")
	with := func(args ...string) []string { return append(args, "--config", file) }
	e.prints(with("leader", "--is", "-g", "billing"), "warning: files of groups are ignored")
	e.prints(with("policy", "--apply", "-g", "billing"), "policy.type", "first", "revision 2 is in force")
	e.fails(2, with("leader", "-g", "mail"), "the root of the group mail is "+e.base+"/mail, but the configuration of this host says /elsewhere")
	e.fails(2, with("history"), "there are 3 groups below "+e.base, "billing, later, mail")
	e.fails(2, with("status"), "later    none", "it does not exist yet: run 'zkelectd init --config "+file+" -g later' once", "1 of 3 groups cannot be shown: mail")
	e.fails(2, with("init"), "the group billing is in use, and left as it is", "the group "+e.base+"/later is initialized", "group mail: ")
	e.fails(2, with("init", "-g", "nosuch"), "the group nosuch has no file in "+dir)
	for _, args := range [][]string{{"history"}, {"group", "delete", "--yes", "-g", "nosuch"}} {
		e.fails(statusError, append(args, "--root", e.base+"/nosuch"), "there is no group at "+e.base+"/nosuch", "run 'zkelectd init --root "+e.base+"/nosuch' once")
	}
	e.prints(with("init", "--root", e.base+"-jobs/report"), "the group "+e.base+"-jobs/report is initialized")
	write(filepath.Join(dir, "later.yaml"), "slots: {count: 2}\n")
	e.fails(2, with("init", "-g", "later"), "records a group with one leader, but")
	e.prints([]string{"__complete", "drain", "--config", file, "-g", "l"}, "later\n")
}
