package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/workenv"
)

// Admission depends on processes, users and programs, so guard, daemon and the start of the unit are separate processes: this
// program in other roles.
func TestMain(m *testing.M) {
	switch os.Getenv("ROLE") {
	case "guard":
		os.Exit(beGuard())
	case "daemon":
		os.Exit(beDaemon())
	case "admit":
		os.Exit(beAdmit())
	}
	goleak.VerifyTestMain(m)
}

// beGuard starts a daemon and exits with it, or before it.
func beGuard() int {
	cmd := exec.Command(os.Getenv("DAEMON"))
	cmd.Env = append(os.Environ(), "ROLE=daemon", fmt.Sprintf("GUARD=%d", os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if user, err := strconv.Atoi(os.Getenv("DAEMON_USER")); err == nil {
		cmd.SysProcAttr = as(uint32(user))
	}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	if os.Getenv("LIE") == "guard is dead" {
		return 0
	}
	cmd.Wait()
	return 0
}

// as returns the attributes for starting a process as another user.
func as(user uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}

// beDaemon serves answers until the test closes its standard input.
func beDaemon() int {
	var a Answer
	if err := json.Unmarshal([]byte(os.Getenv("ANSWER")), &a); err != nil {
		fmt.Println(err)
		return 1
	}
	a.Daemon = process(os.Getpid())
	fmt.Sscan(os.Getenv("GUARD"), &a.Guard.Pid)
	a.Guard = process(a.Guard.Pid)
	socket := os.Getenv("SOCKET")
	var err error
	if change := changedAnswers[os.Getenv("LIE")]; change != nil {
		change(&a)
	}
	if lie := hostileAnswers[os.Getenv("LIE")]; lie != nil {
		err = lie(socket)
	} else {
		_, err = Serve(socket, a)
	}
	fmt.Println("ready", err)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// changedAnswers are answers in which a hostile daemon has changed something.
var changedAnswers = map[string]func(a *Answer){
	"process 1":      func(a *Answer) { a.Guard = process(1) },
	"a reused pid":   func(a *Answer) { a.Guard.Started-- },
	"itself reused":  func(a *Answer) { a.Daemon.Started-- },
	"another daemon": func(a *Answer) { a.Daemon = a.Guard },
	"its own guard":  func(a *Answer) { a.Guard = a.Daemon },
}

// hostileAnswers are what a hostile daemon may do instead of answering.
var hostileAnswers = map[string]func(socket string) error{
	"silence": func(socket string) error {
		l, err := net.Listen("unix", socket)
		silentListener = l
		return err
	},
	"a FIFO": func(socket string) error { return syscall.Mkfifo(socket, 0o666) },
	"a link": func(socket string) error { return os.Symlink("/dev/zero", socket) },
	"a file": func(socket string) error {
		return os.WriteFile(socket, []byte("LD_PRELOAD=/run/evil.so\n"), 0o666)
	},
	"no end": func(socket string) error { return serveText(socket, strings.Repeat("x", 4*maxAnswer)) },
	"rubbish": func(socket string) error {
		return serveText(socket, "# The permit of guard 1 1: x\nLD_PRELOAD=/run/evil.so\n")
	},
	"a newer version": func(socket string) error { return serveText(socket, `{"v":2}`) },
}

var silentListener net.Listener

// serveText serves a text instead of an answer.
func serveText(socket, text string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &Server{listener: l, done: make(chan struct{})}
	go s.serve([]byte(text)) // ends with the process
	return nil
}

func process(pid int) guard.Process {
	p, _ := guard.Identify("", pid)
	return p
}

func beAdmit() int {
	if err := Admit(context.Background(), os.Getenv("SOCKET"), os.Getenv("FILES")); err != nil {
		fmt.Println(err)
		return 255
	}
	return 0
}

// testFencing is the fencing information of the daemons in the tests.
var testFencing = workenv.Fencing{Node: "n1", Site: "Zürich west", Group: "cluster", Term: "7", Root: "/cluster"}
