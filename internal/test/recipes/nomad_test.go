package recipes

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["nomad"] = nomad }

// nomadTask is what the test reads in a task of a job file: no more of it is known to be right.
type nomadTask struct {
	command       string
	args          []string
	env           map[string]string
	sidecar, term bool
}

var (
	nomadBlock = regexp.MustCompile(`(?ms)^    task "(\w+)" \{\n(.*?)^    \}$`)
	nomadPair  = regexp.MustCompile(`(?m)^ +(\w+) += "(.*)"$`)
	nomadArgs  = regexp.MustCompile(`(?m)^ +args += \[(.*)\]$`)
)

// nomadTasks reads the tasks of a job, with the variables that Nomad replaces.
func nomadTasks(text string, variables ...string) map[string]nomadTask {
	tasks := make(map[string]nomadTask)
	for _, m := range nomadBlock.FindAllStringSubmatch(text, -1) {
		task := nomadTask{env: make(map[string]string), sidecar: strings.Contains(m[2], "hook    = \"prestart\"") && strings.Contains(m[2], "sidecar = true")}
		_, env, _ := strings.Cut(m[2], "      env {\n")
		env, _, _ = strings.Cut(env, "      }\n")
		for _, pair := range nomadPair.FindAllStringSubmatch(env, -1) {
			task.env[pair[1]] = strings.NewReplacer(variables...).Replace(pair[2])
		}
		for _, pair := range nomadPair.FindAllStringSubmatch(m[2], -1) {
			switch pair[1] {
			case "command":
				task.command = pair[2]
			case "kill_signal":
				task.term = pair[2] == "SIGTERM"
			}
		}
		if args := nomadArgs.FindStringSubmatch(m[2]); args != nil {
			for arg := range strings.SplitSeq(args[1], ", ") {
				task.args = append(task.args, strings.Trim(arg, `"`))
			}
		}
		tasks[m[1]] = task
	}
	return tasks
}

// nomad runs the tasks of two allocations as the job file says: the sidecar first, and at the end last. The
// application is that of another recipe.
func nomad(t *testing.T) {
	w := &worker{newFleet(t, zkserver.Options{}), ""}
	w.program = w.write("worker.py", w.example("application/worker.py"))
	w.python("worker.open_database()") // creates the tables
	text := w.example("nomad/app.nomad.hcl", "zk1:2181,zk2:2181,zk3:2181", w.zk.Addr(), "/usr/bin/zkelectd", binary, "/usr/bin/app", w.program)
	w.write("zookeeper.auth", "digest:app:secret\n")
	if err := os.Chmod(w.file("zookeeper.auth"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(name string, task nomadTask) {
		t.Helper()
		cmd := exec.Command(task.command, task.args...)
		cmd.Env = append(os.Environ(), "APP_DATABASE="+w.file("app.db"))
		for key, value := range task.env {
			if strings.Contains(value, "${") {
				t.Errorf("%s = %q has a variable that Nomad is not known to replace", key, value)
			}
			cmd.Env = append(cmd.Env, key+"="+value)
		}
		if !task.term {
			t.Errorf("%s: the test stops it by SIGTERM", name)
		}
		w.start(name, cmd)
	}
	secured := func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "ZKELECTD_ZOOKEEPER_SERVERS="+w.zk.Addr(), "ZKELECTD_ZOOKEEPER_ROOT=/app", "ZKELECTD_ZOOKEEPER_ACL=private",
			"ZKELECTD_ZOOKEEPER_AUTH_FILE="+w.file("zookeeper.auth"))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, status := secured("init"); status != 0 {
		t.Fatal(out)
	}
	for i := range 2 {
		dir := w.file(fmt.Sprint("alloc", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		tasks := nomadTasks(text, "${NOMAD_ALLOC_INDEX}", fmt.Sprint(i), "${node.datacenter}", "dc1", "${NOMAD_SECRETS_DIR}", w.dir, "${NOMAD_ALLOC_DIR}", dir)
		if len(tasks) != 2 || !tasks["zkelectd"].sidecar || tasks["app"].sidecar {
			t.Fatalf("%+v", tasks)
		}
		start(fmt.Sprint("zkelectd", i), tasks["zkelectd"])
		app := tasks["app"]
		app.args = append(app.args, fmt.Sprint("app-", i))
		start(fmt.Sprint("app", i), app)
		w.eventually(fmt.Sprintf("app-%d has joined", i), func() bool {
			out, _ := secured("status")
			return strings.Contains(out, fmt.Sprintf("\napp-%d ", i))
		})
	}
	leader := func() string {
		out, _ := secured("leader")
		return strings.TrimSpace(out)
	}
	w.eventually("one leads", func() bool { return strings.HasPrefix(leader(), "app-") })
	first := leader()
	w.writes(first)
	index := strings.TrimPrefix(first, "app-")
	w.stop("app" + index) // as Nomad stops an allocation
	w.stop("zkelectd" + index)
	other := map[string]string{"app-0": "app-1", "app-1": "app-0"}[first]
	w.eventually(other+" leads", func() bool { return leader() == other })
	w.writes(other)
	if n := w.number("SELECT count(*) FROM orders a JOIN orders b ON a.id < b.id WHERE a.term > b.term"); n != 0 {
		t.Errorf("%d writes of an old leader", n)
	}
}
