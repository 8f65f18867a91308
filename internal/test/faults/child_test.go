package faults

import (
	"fmt"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/hostfault"
)

// The arguments with which this program runs in a role other than test.
const (
	daemonizeArgument  = "daemonize"
	grandchildArgument = "grandchild"
	hogArgument        = "hog"
	memoryArgument     = "glut"
	childArgument      = "child"   // followed by the name of the group
	standbyArgument    = "standby" // likewise
	orderArgument      = "order"   // to a standby: promotes or demotes it
)

// playRole runs the role that the arguments select, and reports whether there was one.
func playRole() bool {
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
	case role == memoryArgument:
		useAllMemory(os.Args[2])
	case role == childArgument:
		child()
	case role == standbyArgument:
		standby()
	case role == orderArgument:
		order()
	default:
		return false
	}
	return true
}

// ledgerWriter writes lines "boottime-ns node term event run" to the ledger of a group. All processes of one child write the same
// run.
type ledgerWriter struct {
	file       *os.File
	path       string
	node, term string
	run        string
	escaped    map[string]bool // the behaviors whose processes have been started
}

func newLedgerWriter(path, node, term, run string) *ledgerWriter {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return &ledgerWriter{file, path, node, term, run, make(map[string]bool)}
}

func (s *ledgerWriter) write(event string) {
	fmt.Fprintf(s.file, "%d %s %s %s %s\n", boottime.Now().Nanoseconds(), s.node, s.term, event, s.run)
}

// args returns the arguments that pass the ledger and the run to a process without an environment.
func (s *ledgerWriter) args() []string { return []string{s.path, s.node, s.term, s.run} }

// shouldBehave reports whether the campaign asks the children of this node for a behavior.
func (s *ledgerWriter) shouldBehave(behavior string) bool {
	_, err := os.Stat(behaviorFile(filepath.Dir(s.path), behavior, s.node))
	return err == nil
}

func behaviorFile(dir, behavior, node string) string { return filepath.Join(dir, behavior+"-"+node) }

// The behaviors of children.
const (
	ignoreTerm = "ignore"    // ignore SIGTERM
	daemonizes = "daemonize" // start a grandchild without an environment, in its own session, whose parent exits
	forks      = "fork"      // start processes, in their own session, each of which starts the next one and exits
)

// child is the leader-only child. It writes to the ledger when it starts, every 10 ms, and when it ends.
func child() {
	run := fmt.Sprintf("%d.%d", boottime.Now().Nanoseconds(), os.Getpid())
	s := newLedgerWriter(os.Getenv("LEDGER"), os.Getenv("ZKELECTD_NODE"), os.Getenv("ZKELECTD_TERM"), run)
	stop := make(chan os.Signal, 1)
	ossignal.Notify(stop, syscall.SIGTERM)
	s.write("start")
	for beat := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-beat:
			s.work()
		case <-stop:
			if !s.shouldBehave(ignoreTerm) {
				s.write("end")
				os.Exit(0)
			}
		}
	}
}

// work does a portion of the leader-only work.
func (s *ledgerWriter) work() {
	s.write("beat")
	s.once(daemonizes, append([]string{self, daemonizeArgument}, s.args()...))
	s.once(forks, append([]string{"/bin/sh", filepath.Join(filepath.Dir(s.path), forkScript)}, append(s.args(), "0")...))
}

// once starts the processes of a behavior that the campaign asks for.
func (s *ledgerWriter) once(behavior string, argv []string) {
	if !s.escaped[behavior] && s.shouldBehave(behavior) {
		s.escaped[behavior] = true
		s.write(behavior)
		escape(argv)
	}
}

// escape starts a process with an empty environment, in a new session.
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

// grandchild writes to the ledger until it is killed.
func grandchild() {
	ossignal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	s := newLedgerWriter(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	s.write("grandchild")
	for range time.Tick(10 * time.Millisecond) {
		s.write("beat")
	}
}

// forkScript is a program that forks about every millisecond: each process writes a line, starts the next one, and exits. Its
// clock is up to 10 ms behind.
const (
	forkScript = "fork.sh"
	forkText   = `read up rest </proc/uptime
echo "${up%.*}${up#*.}0000000 $2 $3 beat $4" >>"$1"
[ "$5" -ge 3000 ] || /bin/sh "$0" "$1" "$2" "$3" "$4" $(($5 + 1)) &
`
)

// useAllMemory uses memory beyond any limit until a process is dead, which the kernel kills for lack of another.
func useAllMemory(pid string) {
	var all [][]byte
	for tick := time.Tick(time.Millisecond); len(all) < 1000; <-tick {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		all = append(all, hostfault.TouchedMemory(1<<20))
	}
}
