package recipes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/faultproxy"
)

func init() { recipes["mariadb"] = runMariadb }

func runMariadb(t *testing.T) {
	d := newDatabases(t, "mariadb", "mysql")
	d.startMariadb()
	d.primary("n1")

	t.Log("a forced move")
	d.move("n2", "--force")
	d.primary("n2")

	t.Log("kill -9 of the daemon")
	d.killDaemon("n2")
	d.primary("n1")

	t.Log("kill -9 of the server: it is restarted in place")
	before := d.mariadbd("n1")
	syscall.Kill(before, syscall.SIGKILL)
	d.eventually("a new server", func() bool { pid := d.mariadbd("n1"); return pid != 0 && pid != before })
	d.primary("n1")

	t.Log("the leader is cut off from ZooKeeper; clients and the replica still reach its server")
	d.hosts["n1"].proxy.SetMode(faultproxy.BlackHole)
	d.leads(d.root, "n2")
	d.hosts["n1"].proxy.SetMode(faultproxy.Pass)
	d.primary("n2")

	t.Log("the leader's host is lost: nothing is confirmed until there is a replica again")
	d.loseHost("n2")
	confirmed := len(d.writes.ids())
	d.leads(d.root, "n1")
	if now := len(d.writes.ids()); now != confirmed {
		t.Errorf("%d writes were confirmed without a replica", now-confirmed)
	}
	d.startHost("n2")
	d.primary("n1")

	t.Log("a former primary that has not followed refuses")
	d.stop("n1-replica")
	d.killDaemon("n1")
	d.leads(d.root, "n2")
	d.move("n1", "--force")
	d.logged("n1", "another host may have led since")
	d.run("touch", d.state("n2", "accept")) // neither host can know that the other one has not led
	d.move("n2", "--force")
	d.startReplica("n1")
	d.leads(d.root, "n2")
	d.zkelectd("clear-strikes", "--all", "--zk", d.zk.Addr(), "--root", d.root)
	d.primary("n2")

	t.Log("a takeover that fails: the former primary continues")
	d.run("mkdir", d.state("n1", "term.new"))
	d.move("n1", "--force")
	d.logged("n1", "term.new")
	d.leads(d.root, "n2")
	start := time.Now()
	d.eventually("writes are confirmed on n2", func() bool { return d.writes.last(start) == "n2" })
	d.check([]string{"n1", "n2", "n1", "n2", "n1", "n2"}, d.mariadb("n2", "SELECT id FROM test.log"))
}

// startMariadb makes n1 the first primary, and starts both hosts and the clients.
func (d *databases) startMariadb() {
	d.t.Helper()
	for id, h := range d.hosts {
		peer := d.hosts[h.peer]
		d.configure(id, "mariadb", d.example("mariadb/mariadb.env", "NODE=n1", "NODE="+id, "PEER=n2", "PEER="+h.peer,
			"SERVER_ID=1", "SERVER_ID="+id[1:], "LISTEN=10.0.0.1", "LISTEN=127.0.0.1", "PEER_HOST=10.0.0.2", "PEER_HOST=127.0.0.1",
			"PEER_PORT=3306", fmt.Sprintf("PEER_PORT=%d", peer.port), "\nPORT=3306", "\nPORT="+strconv.Itoa(h.port),
			"/var/lib/mysql/zkelectd", d.file(id), "/etc/zkelectd.yaml", d.file(id+".yaml")))
	}
	install := d.asUser("mariadb-install-db", "--no-defaults", "--datadir="+d.file("n1/data"),
		"--auth-root-authentication-method=socket", "--auth-root-socket-user=mysql", "--skip-test-db")
	if out, err := install.CombinedOutput(); err != nil {
		d.t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	d.run("touch", d.state("n1", "accept"))
	d.startHost("n1")
	d.leads(d.root, "n1")
	d.mariadb("n1", `SET sql_log_bin = 0;
		CREATE USER replicator IDENTIFIED BY 'change me';
		GRANT SELECT, RELOAD, PROCESS, LOCK TABLES, SHOW VIEW, EVENT, TRIGGER, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO replicator;
		CREATE DATABASE test; CREATE TABLE test.log (id bigint PRIMARY KEY);
		CREATE TABLE test.probe (id bigint, host text);
		CREATE USER client IDENTIFIED BY 'client'; GRANT SELECT, INSERT ON test.* TO client;
		CREATE USER probe IDENTIFIED BY 'probe'; GRANT SELECT, INSERT, BINLOG ADMIN ON *.* TO probe`)
	d.startHost("n2")
	hosts := []*databaseHost{d.hosts["n1"], d.hosts["n2"]}
	for i, h := range hosts {
		(&sqlWriter{log: d.probes, first: i * 1e9, connect: mariadbClient("probe", h), statement: func(id int) string {
			return fmt.Sprintf("SET sql_log_bin = 0; INSERT INTO test.probe VALUES (%d, @@report_host) RETURNING id, @@report_host;", id)
		}}).start(d.t)
	}
	(&sqlWriter{log: d.writes, connect: mariadbClient("client", hosts...), statement: func(id int) string {
		return fmt.Sprintf("INSERT INTO test.log VALUES (%d) RETURNING id, @@report_host;", id)
	}}).start(d.t)
}

// mariadbClient returns commands for clients of each of the hosts in turn, which end at the first error.
func mariadbClient(user string, hosts ...*databaseHost) func(context.Context, int) *exec.Cmd {
	return func(ctx context.Context, n int) *exec.Cmd {
		return exec.CommandContext(ctx, "mariadb", "--no-defaults", "-NBn", "--skip-reconnect", "--connect-timeout=2",
			"-h", "127.0.0.1", "-P", strconv.Itoa(hosts[n%len(hosts)].port), "-u", user, "-p"+user)
	}
}

// mariadb runs statements on a host's server, and returns what they print.
func (d *databases) mariadb(id, sql string) string {
	d.t.Helper()
	cmd := d.asUser("mariadb", "--no-defaults", "-NB", "-S", d.state(id, "socket"))
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("mariadb on %s: %v\n%s", id, err, out)
	}
	return string(out)
}

// mariadbd returns the process id of a host's server; 0 if there is none.
func (d *databases) mariadbd(id string) int {
	data, err := os.ReadFile(d.state(id, "pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}
