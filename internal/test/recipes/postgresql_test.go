package recipes

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["postgresql"] = runPostgresql }

var (
	postgresqlRounds = flag.Int("recipes.rounds", 1, "how often the recipe postgresql loses its leader in each of four ways")
	postgresqlHosts  = flag.Int("recipes.hosts", 3, "how many hosts the recipe postgresql has")
)

const (
	postgresqlPrograms = "/usr/lib/postgresql/15/bin"
	postgresqlRoot     = "/postgresql"
)

// postgresqlFleet is hosts with a PostgreSQL each, and a client.
type postgresqlFleet struct {
	*fleet
	network *network
	hosts   []string
	scripts string  // the directory with the recipe's scripts
	zone    string  // the address of ZooKeeper
	sync    int     // how many standbys confirm a commit
	probes  *sqlLog // writes to each server that wait for no standby: who accepts writes at all
	writes  *sqlLog // writes of a client that follows the primary

	leaders []string // in order

	mu   sync.Mutex
	logs map[string]logPosition // the newest of each host as a standby, with the term of its data
	lost map[int]bool           // ids of confirmed writes that are known to be lost
}

// logPosition is how much of the log a standby had, as it said itself.
type logPosition struct {
	term     int64
	replayed int64 // and flushed: what is only written to a file may still be replayed later, but was not confirmed
}

func runPostgresql(t *testing.T) {
	t.Run("synchronous", func(t *testing.T) {
		f := newPostgresql(t, *postgresqlHosts/2)
		for range *postgresqlRounds {
			f.round()
		}
		f.recopy()
		f.end()
	})
	t.Run("asynchronous", func(t *testing.T) {
		f := newPostgresql(t, 0)
		for range *postgresqlRounds {
			f.round()
		}
		f.lag()
		f.end()
	})
}

// newPostgresql creates the hosts and the data of n1, and starts everything.
func newPostgresql(t *testing.T, confirms int) *postgresqlFleet {
	t.Helper()
	var hosts []string
	for i := range *postgresqlHosts {
		hosts = append(hosts, fmt.Sprintf("n%d", i+1))
	}
	n := newNetwork(t, append(slices.Clone(hosts), "client")...)
	f := &postgresqlFleet{fleet: newFleet(t, zkserver.Options{}), network: n, hosts: hosts, sync: confirms, probes: &sqlLog{},
		writes: &sqlLog{}, logs: make(map[string]logPosition), lost: make(map[int]bool)}
	f.zone = n.serveZooKeeper(f.zk.Addr())
	f.scripts = filepath.Join(f.dir, "scripts")
	f.run("install", "-d", f.scripts)
	f.run("install", binary, f.scripts) // whose directory only this user can read
	for _, file := range filesOf(t, "postgresql") {
		f.write("scripts/"+filepath.Base(file), read(t, file))
	}
	var addresses []string
	for i, id := range hosts {
		addresses = append(addresses, fmt.Sprintf("%s=192.0.2.%d", id, i+1))
	}
	for _, id := range hosts {
		f.run("install", "-d", "-o", "postgres", "-m", "0700", f.file(id), f.file(id+"/state"))
		env := f.write(id+".env", f.example("postgresql/postgresql.env", "NODE=n1", "NODE="+id, "n1=10.0.0.1 n2=10.0.0.2 n3=10.0.0.3",
			strings.Join(addresses, " "), "SYNC=1", "SYNC="+strconv.Itoa(confirms), "/var/lib/postgresql/zkelectd", f.file(id)))
		replace := []string{"{id: n1}", "{id: " + id + "}"}
		if confirms == 0 {
			replace = []string{"{id: n1}", fmt.Sprintf("{id: %s, site: %s}", id, site(id)), "  rank: [score", "  # rank: [score", `  filter: ["member.known`,
				`  # filter: ["member.known`, "  # rank: [site", "  rank: [site", `  # filter: ["member.inc`, `  filter: ["member.inc`, "  # sites:", "  sites:"}
		}
		f.write(id+".yaml", f.example("postgresql/zkelectd.yaml", append(replace, `"zk1:2181", "zk2:2181", "zk3:2181"`,
			fmt.Sprintf("%q", f.zone), "  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "",
			"/usr/local/lib/zkelectd-postgresql", f.scripts, "/etc/zkelectd/postgresql.env", env)...))
	}
	initialize := f.asPostgres("n1", postgresqlPrograms+"/initdb", "--auth=trust", "--data-checksums", "-D", f.file("n1/data"))
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	hba, err := os.OpenFile(f.file("n1/data/pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(hba, "host all postgres 192.0.2.0/24 trust\nhost replication postgres 192.0.2.0/24 trust\n")
	hba.Close()
	single := f.asPostgres("n1", postgresqlPrograms+"/postgres", "--single", "-D", f.file("n1/data"), "postgres")
	single.Stdin = strings.NewReader("CREATE TABLE fence (term bigint PRIMARY KEY, start pg_lsn NOT NULL, timeline text NOT NULL)\n")
	if out, err := single.CombinedOutput(); err != nil {
		t.Fatalf("postgres --single: %v\n%s", err, out)
	}
	f.run("setpriv", "--reuid", "postgres", "touch", f.file("n1/state/accept"))
	for _, id := range hosts {
		f.startHost(id)
	}
	f.stopFirst(hosts...)
	f.leads(postgresqlRoot, "n1")
	f.leaders = []string{"n1"}
	f.sql("n1", `SET synchronous_commit = local; CREATE TABLE log (id bigint PRIMARY KEY); CREATE TABLE probe (id bigint)`)
	for i, id := range hosts {
		f.sample(id)
		(&sqlWriter{log: f.probes, first: (i + 1) * 1e9, pause: 50 * time.Millisecond, connect: f.local(id), statement: func(id int) string {
			return fmt.Sprintf("SET synchronous_commit = local; INSERT INTO probe VALUES (%d) RETURNING id, current_setting('cluster_name');", id)
		}}).start(t)
	}
	f.complete()
	var all []string
	for _, address := range addresses {
		_, address, _ = strings.Cut(address, "=")
		all = append(all, address)
	}
	client := append(n.in("client"), psql("host="+strings.Join(all, ",")+" user=postgres target_session_attrs=read-write connect_timeout=2 "+
		"tcp_user_timeout=2000 keepalives_idle=1 keepalives_interval=1 keepalives_count=2")...)
	(&sqlWriter{log: f.writes, pause: 20 * time.Millisecond, connect: func(ctx context.Context, _ int) *exec.Cmd {
		return exec.CommandContext(ctx, client[0], client[1:]...)
	}, statement: func(id int) string {
		return fmt.Sprintf("INSERT INTO log VALUES (%d) RETURNING id, current_setting('cluster_name');", id)
	}}).start(t)
	f.confirmed("n1", time.Now())
	return f
}

// site returns the site of a host when they replicate asynchronously: that of n3 ranks first.
func site(id string) string { return map[bool]string{true: "dc1", false: "dc2"}[id == "n3"] }

// psql returns a psql command that ends at the first error.
func psql(conninfo string) []string {
	return []string{postgresqlPrograms + "/psql", "-XqAt", "-F", " ", "-v", "ON_ERROR_STOP=1", conninfo + " dbname=postgres"}
}

// local returns psql commands that use the socket of a host, which needs no network.
func (f *postgresqlFleet) local(id string) func(context.Context, int) *exec.Cmd {
	argv := psql("host=" + f.file(id+"/state") + " user=postgres")
	return func(ctx context.Context, _ int) *exec.Cmd { return exec.CommandContext(ctx, argv[0], argv[1:]...) }
}

// query runs statements on the server of a host, and returns what they print.
func (f *postgresqlFleet) query(id, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	cmd := f.local(id)(ctx, 0)
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func (f *postgresqlFleet) sql(id, sql string) string {
	f.t.Helper()
	out, err := f.query(id, sql)
	if err != nil {
		f.t.Fatalf("psql on %s: %v: %s", id, err, out)
	}
	return out
}

// asPostgres returns the command that runs a program on a host as the user postgres.
func (f *postgresqlFleet) asPostgres(id string, argv ...string) *exec.Cmd {
	prefix := append(f.network.in(id), "setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "env", "HOME="+f.dir,
		"PATH="+f.scripts+":"+os.Getenv("PATH"))
	argv = append(prefix, argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = f.file(id)
	return cmd
}

func (f *postgresqlFleet) startHost(id string) {
	f.t.Helper()
	f.start(id, f.asPostgres(id, f.scripts+"/zkelectd", "run", "--create", "--config", f.file(id+".yaml")))
}

// sample records how much the standby of a host has, all the time, until the end of the test.
func (f *postgresqlFleet) sample(id string) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	const statement = "SELECT coalesce(max(term), 0), (least(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0')::bigint FROM fence HAVING pg_is_in_recovery();\n"
	session := func() {
		cmd := f.local(id)(ctx, 0)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if cmd.Start() != nil {
			return
		}
		defer cmd.Wait()
		defer in.Close()
		for answers := bufio.NewScanner(out); ; {
			var p logPosition
			if _, err := io.WriteString(in, statement); err != nil || !answers.Scan() {
				return
			}
			if _, err := fmt.Sscan(answers.Text(), &p.term, &p.replayed); err == nil {
				f.mu.Lock()
				if p.term >= f.logs[id].term {
					f.logs[id] = p
				}
				f.mu.Unlock()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			session()
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	f.t.Cleanup(func() { cancel(); <-done })
}

func (f *postgresqlFleet) leader() string { return f.leaders[len(f.leaders)-1] }

func (f *postgresqlFleet) others() []string {
	return slices.DeleteFunc(slices.Clone(f.hosts), func(id string) bool { return id == f.leader() })
}

// complete waits until all other hosts are standbys of the leader, and the elector knows that each of them could lead.
func (f *postgresqlFleet) complete() {
	f.t.Helper()
	f.eventually("all standbys follow "+f.leader(), func() bool {
		n, err := f.query(f.leader(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name LIKE 'n%'")
		return err == nil && n == strconv.Itoa(len(f.hosts)-1)
	})
	for _, id := range f.others() {
		f.eventually(id+" could lead", func() bool { return f.move(id, "--dry-run") })
	}
}

func (f *postgresqlFleet) move(id string, flags ...string) bool {
	_, status := f.zkelectd(append([]string{"move", id, "--zk", f.zk.Addr(), "--root", postgresqlRoot}, flags...)...)
	return status == 0
}

// confirmed waits until a client's write to a host has been confirmed since a time.
func (f *postgresqlFleet) confirmed(id string, since time.Time) {
	f.t.Helper()
	f.eventually("writes are confirmed on "+id, func() bool { return f.writes.last(since) == id })
}

// round loses the leader in each of the ways.
func (f *postgresqlFleet) round() {
	f.t.Helper()
	f.failover("move", func(string) {
		target := f.others()[len(f.leaders)%(len(f.hosts)-1)]
		f.eventually("a move to "+target, func() bool { return f.move(target, "--wait") }) // again if a host has not answered in time
	}, nil)
	f.failover("kill -9 of the daemon", func(leader string) { f.signal(syscall.SIGKILL, leader, "daemon") }, nil)
	f.failover("cut off from ZooKeeper", func(leader string) { f.network.cut(leader, true, "back") },
		func(leader string) { f.network.cut(leader, false, "back") })
	f.failover("host lost", f.loseHost, func(leader string) {
		f.network.cut(leader, false, "front", "back")
		f.startHost(leader)
	})
}

// loseHost ends everything of a host, without a packet to the others: its network is cut first.
func (f *postgresqlFleet) loseHost(id string) {
	f.t.Helper()
	f.network.cut(id, true, "front", "back")
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range f.processesIn(id) {
			syscall.Kill(pid, sig)
		}
	}
	f.eventually("the processes of "+id+" are gone", func() bool { return len(f.processesIn(id)) == 0 })
	<-f.processes[id].Done
}

// processesIn returns the processes of a host, which work in its directory.
func (f *postgresqlFleet) processesIn(id string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		dir, _ := os.Readlink(link)
		if pid, _ := strconv.Atoi(strings.Split(link, "/")[2]); strings.HasPrefix(dir+"/", f.file(id)+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// failover loses the leader, waits until another host leads and confirms writes, and checks that it has most. Then the old one returns.
func (f *postgresqlFleet) failover(kind string, lose, restore func(leader string)) {
	f.t.Helper()
	old := f.leader()
	term := f.term(old)
	since := time.Now()
	f.confirmed(old, since)
	failed := time.Now()
	lose(old)
	var leader string
	f.eventually("another host leads after "+old, func() bool {
		out, status := f.zkelectd("leader", "--zk", f.zk.Addr(), "--root", postgresqlRoot)
		leader = strings.TrimSpace(out)
		return status == 0 && leader != old
	})
	ready := time.Since(failed)
	f.mu.Lock()
	logs := maps.Clone(f.logs)
	f.mu.Unlock()
	f.leaders = append(f.leaders, leader)
	now := f.term(leader)
	start, _ := strconv.ParseInt(f.sql(leader, fmt.Sprintf("SELECT (start - '0/0')::bigint FROM fence WHERE term = %d", now)), 10, 64)
	for id, p := range logs {
		if id != old && id != leader && p.term == term && p.replayed > start {
			f.t.Errorf("%s: %s was promoted at %d, but %s had %d in term %d", kind, leader, start, id, p.replayed, term)
		}
	}
	f.answers(now, leader, kind)
	f.confirmed(leader, failed)
	without, lost := f.gap(failed), f.countLost(leader)
	if f.sync > 0 && lost > 0 {
		f.t.Errorf("%s: %s does not have %d confirmed writes", kind, leader, lost)
	}
	if restore != nil {
		restore(old)
	}
	f.complete()
	f.t.Logf("%s: %s -> %s, READY after %s, %s without a confirmed write, %d confirmed writes lost", kind, old, leader,
		ready.Round(time.Millisecond), without.Round(time.Millisecond), lost)
}

// term returns the term of the newest data of a host.
func (f *postgresqlFleet) term(id string) int64 {
	f.t.Helper()
	term, _ := strconv.ParseInt(f.sql(id, "SELECT max(term) FROM fence"), 10, 64)
	return term
}

// answers compares what the members have answered to the roll call of a term.
func (f *postgresqlFleet) answers(term int64, leader, kind string) {
	f.t.Helper()
	out, status := f.zkelectd("explain", "--term", strconv.FormatInt(term, 10), "--zk", f.zk.Addr(), "--root", postgresqlRoot, "-o", "json")
	var entry struct {
		Previous string
		Ranking  []struct {
			Node     string
			RollCall *struct{ Score *float64 } `json:"roll_call"`
		}
	}
	if err := json.Unmarshal([]byte(out), &entry); status != 0 || err != nil {
		f.t.Fatalf("explain: %v\n%s", err, out)
	}
	answered, best := int64(0), int64(-1)
	for _, m := range entry.Ranking {
		switch {
		case m.RollCall == nil || m.RollCall.Score == nil:
		case m.Node == leader:
			answered = int64(*m.RollCall.Score)
		case m.Node != f.leaders[len(f.leaders)-2]:
			best = max(best, int64(*m.RollCall.Score))
		}
	}
	if answered == 0 && entry.Previous != leader { // one that takes over again may be an incumbent without an answer: promote compares
		f.t.Errorf("%s leads in term %d without an answer to the roll call:\n%s", leader, term, out)
	}
	allowed := int64(0)
	if f.sync == 0 || kind == "move" { // the operator has chosen a host, or its site ranks first
		allowed = maxLag
	}
	if missed := best - answered; missed > allowed {
		f.t.Errorf("%s: %s leads in term %d, but another host has answered %d bytes more", kind, leader, term, missed)
	}
}

// gap returns the longest time without a confirmed write, since shortly before a moment.
func (f *postgresqlFleet) gap(since time.Time) (longest time.Duration) {
	f.writes.mu.Lock()
	defer f.writes.mu.Unlock()
	for i, w := range f.writes.writes {
		if i > 0 && w.acked.After(since) {
			longest = max(longest, w.acked.Sub(f.writes.writes[i-1].acked))
		}
	}
	return longest
}

// countLost returns how many confirmed writes a host does not have that have not been lost before.
func (f *postgresqlFleet) countLost(id string) (n int) {
	f.t.Helper()
	f.writes.mu.Lock()
	confirmed := slices.Clone(f.writes.writes)
	f.writes.mu.Unlock()
	have := make(map[string]bool)
	for row := range strings.FieldsSeq(f.sql(id, "SELECT id FROM log")) {
		have[row] = true
	}
	for _, w := range confirmed {
		if !have[strconv.Itoa(w.id)] && !f.lost[w.id] {
			f.lost[w.id] = true
			n++
		}
	}
	return n
}

// recopy lets a standby lose its data. It copies them again, and meanwhile commits are confirmed.
func (f *postgresqlFleet) recopy() {
	f.t.Helper()
	id := f.others()[0]
	f.stop(id)
	f.run("rm", "-r", f.file(id+"/data"))
	f.confirmed(f.leader(), time.Now())
	f.startHost(id)
	f.logged(id, "copies the data")
	f.complete()
}

// maxLag is the limit of the lag in the example's filter.
const maxLag = 16777216

// lag makes n3, which ranks first by its site, receive nothing for so long that it is more than the limit behind. Then it does not lead.
func (f *postgresqlFleet) lag() {
	f.t.Helper()
	if f.leader() == "n3" {
		f.failover("move", func(string) { f.eventually("a move to n1", func() bool { return f.move("n1", "--wait") }) }, nil)
	}
	receiver := f.sql("n3", "SELECT pid FROM pg_stat_wal_receiver")
	pid, err := strconv.Atoi(receiver)
	if err != nil {
		f.t.Fatalf("the receiver of n3 has the process id %q", receiver)
	}
	syscall.Kill(pid, syscall.SIGSTOP)
	f.sql(f.leader(), "SELECT count(pg_logical_emit_message(false, 'lag', repeat('x', 1 << 20))) FROM generate_series(1, 24)")
	f.failover("n3 is too far behind", func(leader string) { f.signal(syscall.SIGKILL, leader, "daemon") }, func(string) {
		syscall.Kill(pid, syscall.SIGCONT)
	})
	if f.leader() == "n3" {
		f.t.Error("n3 leads, although it was more than the limit behind")
	}
	f.failover("n3 is not too far behind", func(leader string) { f.signal(syscall.SIGKILL, leader, "daemon") }, nil)
	if f.leader() != "n3" {
		f.t.Errorf("%s leads, although n3 ranks first by its site", f.leader())
	}
}

// end checks who has accepted writes, and that the last leader has all confirmed ones.
func (f *postgresqlFleet) end() {
	f.t.Helper()
	if n := f.countLost(f.leader()); f.sync > 0 && n > 0 {
		f.t.Errorf("in the end %d more confirmed writes are lost", n)
	}
	for _, log := range []*sqlLog{f.probes, f.writes} {
		if got := log.order(); !slices.Equal(got, f.leaders) {
			f.t.Errorf("hosts accepted writes in the order %v, want %v", got, f.leaders)
		}
	}
	f.t.Logf("%d confirmed writes, %d lost; %d probes accepted", len(f.writes.writes), len(f.lost), len(f.probes.writes))
}
