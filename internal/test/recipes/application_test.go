package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["application"] = application }

// worker runs the application of the recipe.
type worker struct {
	*fleet
	program string
}

// python runs a script that can import the application, and returns its output.
func (w *worker) python(script string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "python3", "-B", "-c", "import worker\n"+script)
	cmd.Env = append(os.Environ(), "APP_DATABASE="+w.file("app.db"), "PYTHONPATH="+filepath.Dir(w.program))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// number returns the result of a query.
func (w *worker) number(query string) int {
	w.t.Helper()
	n, err := strconv.Atoi(w.python("print(worker.open_database().execute(" + strconv.Quote(query) + ").fetchone()[0])"))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// writes waits until the application of a host has written again.
func (w *worker) writes(id string) {
	w.t.Helper()
	query := "SELECT count(*) FROM orders WHERE text = '" + id + "'"
	before := w.number(query)
	w.eventually(id+" writes", func() bool { return w.number(query) > before })
}

// suspend stops an application when it does not hold the lock of the database.
func (w *worker) suspend(name string) {
	w.eventually(name+" stands still between two writes", func() bool {
		w.processes[name].Signal(syscall.SIGSTOP)
		if w.python("try:\n  worker.sqlite3.connect(worker.DATABASE, timeout=0.1).execute('BEGIN IMMEDIATE')\n  print('free')\nexcept worker.sqlite3.OperationalError:\n  pass") == "free" {
			return true
		}
		w.processes[name].Signal(syscall.SIGCONT)
		return false
	})
}

// application runs the application on two hosts. The leader's daemon is killed; later the leader's application stands still while
// leadership moves.
func application(t *testing.T) {
	program, err := filepath.Abs(filepath.Join(examples, "application/worker.py"))
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{newFleet(t, zkserver.Options{}), program}
	start := func(id, priority string) {
		w.daemon(id, w.example("application/zkelectd.yaml", "id: n1", "id: "+id, "priority: 100}", "priority: "+priority+"}\npolicy: {failback: immediate}",
			`["zk1:2181", "zk2:2181", "zk3:2181"]`, `["`+w.zk.Addr()+`"]`, "  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "",
			"/run/zkelectd/api.sock", w.file(id+".sock")))
	}
	w.python("worker.open_database()") // creates the tables
	for id, priority := range map[string]string{"n1": "100", "n2": "50"} {
		start(id, priority)
		app := exec.Command("python3", "-B", program, id)
		app.Env = append(os.Environ(), "APP_SOCKET="+w.file(id+".sock"), "APP_DATABASE="+w.file("app.db"))
		w.start("app-"+id, app)
	}
	w.leads("/app", "n1")
	w.writes("n1")

	w.processes["n1"].Process.Kill() // the daemon releases leadership and ends
	w.leads("/app", "n2")
	w.writes("n2")
	w.exit("n1")
	start("n1", "100")
	w.leads("/app", "n1")
	w.writes("n1")

	// The application of the leader stands still, and the other one leads meanwhile. What it then writes is refused.
	old := w.number("SELECT term FROM fence")
	w.suspend("app-n1")
	w.moves("/app", "n2", "--for", "1h")
	w.writes("n2")
	w.processes["app-n1"].Signal(syscall.SIGCONT)
	if got := w.python("print(worker.write(worker.open_database(), " + strconv.Itoa(old) + ", 'late'))"); got != "False" {
		t.Errorf("a write with the token of term %d is not refused: %s", old, got)
	}
	w.writes("n2")
	if n := w.number("SELECT count(*) FROM orders a JOIN orders b ON b.id > a.id AND b.term < a.term"); n != 0 {
		t.Errorf("%d writes came after one of a newer term", n)
	}
	if n := w.number("SELECT count(*) FROM orders WHERE text = 'late'"); n != 0 {
		t.Error("the late write is in the table")
	}
}
