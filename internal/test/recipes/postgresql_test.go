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

func init() { recipes["postgresql"] = runPostgresql }

const postgresqlPrograms = "/usr/lib/postgresql/15/bin"

func runPostgresql(t *testing.T) {
	d := newDatabases(t, "postgresql", "postgres")
	d.startPostgresql()
	d.failovers(d.postmaster)
	d.check(d.psql("n2", "SELECT id FROM log"))
}

// startPostgresql makes n1 the first primary, and starts both hosts and the clients.
func (d *databases) startPostgresql() {
	d.t.Helper()
	for id, h := range d.hosts {
		peer := d.hosts[h.peer]
		d.configure(id, "postgresql", d.example("postgresql/postgresql.env", "NODE=n1", "NODE="+id, "PEER=n2", "PEER="+h.peer,
			"host=10.0.0.2 port=5432", fmt.Sprintf("host=127.0.0.1 port=%d", peer.port), "LISTEN=10.0.0.1", "LISTEN=127.0.0.1",
			"PORT=5432", "PORT="+strconv.Itoa(h.port), "/var/lib/postgresql/zkelectd", d.file(id),
			"/etc/zkelectd.yaml", d.file(id+".yaml")))
	}
	initdb := d.asUser(postgresqlPrograms+"/initdb", "--auth=trust", "--data-checksums", "--no-sync", "-D", d.file("n1/data"))
	if out, err := initdb.CombinedOutput(); err != nil {
		d.t.Fatalf("initdb: %v\n%s", err, out)
	}
	d.run("touch", d.state("n1", "accept"))
	d.startHost("n1")
	d.startHost("n2")
	d.leads(d.root, "n1")
	d.psql("n1", `SET synchronous_commit = local; CREATE TABLE log (id bigint PRIMARY KEY, term bigint);
		CREATE TABLE probe (id bigint)`)
	for i, h := range []*databaseHost{d.hosts["n1"], d.hosts["n2"]} {
		direct := fmt.Sprintf("host=127.0.0.1 port=%d", h.port)
		(&sqlWriter{log: d.probes, first: i * 1e9, connect: psqlClient(direct), statement: func(id int) string {
			return fmt.Sprintf("SET synchronous_commit = local; INSERT INTO probe VALUES (%d) RETURNING id, current_setting('cluster_name');", id)
		}}).start(d.t)
	}
	both := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d target_session_attrs=read-write", d.hosts["n1"].port, d.hosts["n2"].port)
	(&sqlWriter{log: d.writes, connect: psqlClient(both), statement: func(id int) string {
		return fmt.Sprintf("INSERT INTO log SELECT %d, term FROM fence RETURNING id, current_setting('cluster_name');", id)
	}}).start(d.t)
}

// psqlClient returns psql commands that end at the first error.
func psqlClient(conninfo string) func(context.Context, int) *exec.Cmd {
	return func(ctx context.Context, _ int) *exec.Cmd {
		return exec.CommandContext(ctx, "psql", "-XqAt", "-F", " ", "-v", "ON_ERROR_STOP=1",
			conninfo+" user=postgres dbname=postgres connect_timeout=2")
	}
}

// psql runs statements on a host's server, and returns what they print.
func (d *databases) psql(id, sql string) string {
	d.t.Helper()
	cmd := psqlClient(fmt.Sprintf("host=127.0.0.1 port=%d", d.hosts[id].port))(d.t.Context(), 0)
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("psql on %s: %v\n%s", id, err, out)
	}
	return string(out)
}

// postmaster returns the process id of a host's server; 0 if there is none.
func (d *databases) postmaster(id string) int {
	data, err := os.ReadFile(d.file(id + "/data/postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}
