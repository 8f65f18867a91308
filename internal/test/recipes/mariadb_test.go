package recipes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func init() { recipes["mariadb"] = runMariadb }

func runMariadb(t *testing.T) {
	d := newDatabases(t, "mariadb", "mysql")
	d.startMariadb()
	d.failovers(d.mariadbd, "--force")
	d.check(d.mariadb("n2", "SELECT id FROM test.log"))
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
