package faults

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/hostfault"
)

// The arguments by which this program plays something else than a test or the child.
const (
	daemonizeArgument  = "daemonize"
	grandchildArgument = "grandchild"
	hogArgument        = "hog"
	glutArgument       = "glut"
)

// play does what the arguments or the environment ask for, and reports whether that was anything.
func play() bool {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch {
	case role == daemonizeArgument:
		escape(append([]string{self, grandchildArgument}, os.Args[2:]...))
	case role == grandchildArgument:
		grandchild()
	case role == hogArgument:
		err := hostfault.FillMemory(hostfault.ControlGroup{Dir: os.Args[2]}, os.Args[3], func() {})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case role == glutArgument:
		glut(os.Args[2])
	case os.Getenv("LEDGER") != "":
		child()
	default:
		return false
	}
	return true
}

// scribe writes lines "boottime-ns node term event run" into the ledger of the whole fleet. All processes of a child's life
// write the same run.
type scribe struct {
	file       *os.File
	path       string
	node, term string
	run        string
}

func newScribe(path, node, term, run string) *scribe {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return &scribe{file, path, node, term, run}
}

func (s *scribe) write(event string) {
	fmt.Fprintf(s.file, "%d %s %s %s %s\n", boottime.Now().Nanoseconds(), s.node, s.term, event, s.run)
}

// args names the ledger and the run to a process that has no environment.
func (s *scribe) args() []string { return []string{s.path, s.node, s.term, s.run} }

// asked reports whether the nemesis asks the children of this node for some manners.
func (s *scribe) asked(manners string) bool {
	_, err := os.Stat(mannersFile(filepath.Dir(s.path), manners, s.node))
	return err == nil
}

func mannersFile(dir, manners, node string) string { return filepath.Join(dir, manners+"-"+node) }

// The manners of children.
const (
	ignores    = "ignore"    // TERM
	daemonizes = "daemonize" // a grandchild without environment, in a session of its own, whose parent ends
	forks      = "fork"      // processes that end as soon as they have started the next, also in a session of their own
)

// child is the leader-only child: it writes into the ledger when it begins, every 10 ms, and at its end.
func child() {
	run := fmt.Sprintf("%d.%d", boottime.Now().Nanoseconds(), os.Getpid())
	s := newScribe(os.Getenv("LEDGER"), os.Getenv("ZKELECTD_NODE"), os.Getenv("ZKELECTD_TERM"), run)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	s.write("start")
	done := make(map[string]bool)
	once := func(manners string, argv []string) {
		if !done[manners] && s.asked(manners) {
			done[manners] = true
			s.write(manners)
			escape(argv)
		}
	}
	for beat := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-beat:
			s.write("beat")
			once(daemonizes, append([]string{self, daemonizeArgument}, s.args()...))
			once(forks, append([]string{"/bin/sh", filepath.Join(filepath.Dir(s.path), forkScript)}, append(s.args(), "0")...))
		case <-stop:
			if !s.asked(ignores) {
				s.write("end")
				os.Exit(0)
			}
		}
	}
}

// escape starts a process with nothing in its environment, in a session of its own.
func escape(argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	go cmd.Wait()
}

// grandchild works on until it is killed.
func grandchild() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	s := newScribe(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	s.write("grandchild")
	for range time.Tick(10 * time.Millisecond) {
		s.write("beat")
	}
}

// forkScript is a program that forks about every millisecond: each process writes a line, starts the next, and ends. Its
// clock is up to 10 ms slow.
const (
	forkScript = "fork.sh"
	forkText   = `read up rest </proc/uptime
echo "${up%.*}${up#*.}0000000 $2 $3 beat $4" >>"$1"
[ "$5" -ge 3000 ] || /bin/sh "$0" "$1" "$2" "$3" "$4" $(($5 + 1)) &
`
)

// glut uses memory beyond any limit until a process is dead, as the kernel has nobody else to kill.
func glut(pid string) {
	var all [][]byte
	for tick := time.Tick(time.Millisecond); len(all) < 1000; <-tick {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		all = append(all, hostfault.TouchedMemory(1<<20))
	}
}
