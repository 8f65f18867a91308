package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/asynclog"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// A guard takes over its process, and the tests kill guards and daemons. So each is a separate process: this program in another
// role, which the test controls.
func TestMain(m *testing.M) {
	MaybeRunKeeper()
	switch os.Getenv("ROLE") {
	case "guard":
		os.Setenv("ROLE", "daemon") // inherited by the daemon
		if os.Getenv("PID_ONE") == "yes" {
			if err := mountProc(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(beGuard(os.Getenv("FIXTURE_DIR")))
	case "daemon":
		os.Exit(beDaemon(os.Getenv("FIXTURE_DIR")))
	case "forker":
		os.Exit(forkForever(os.Getenv("FIXTURE_DIR")))
	case "unit":
		user, err := strconv.Atoi(os.Getenv("USER_ID"))
		if err = errors.Join(err, GrantKill(user, user)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "root":
		syscall.Setresuid(0, 0, 0)
		syscall.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ())
	}
	testhelper.CatchIgnoredSignals()
	races, err := testhelper.CollectRaces()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testhelper.RunMain(m, races.Check)
}

func beGuard(dir string) int {
	lock, err := LockSessionFile(context.Background(), filepath.Join(dir, "session"), 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	status, err := Run(Options{
		SessionLock: lock,
		Path:        filepath.Join(dir, "daemon"), Argv: os.Args, Respawn: os.Getenv("RESPAWN") == "yes",
		Containment: Containment(os.Getenv("CONTAINMENT")),
		Close:       func(_ context.Context, c Credentials) (string, error) { return "", recordClosedSession(dir, c) },
		Log:         newLog(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}

// newLog returns a logger like that of zkelectd.
func newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(asynclog.New(os.Stderr, func(int64) {}), nil))
}

// closedSession is what the test's [Options.Close] records.
type closedSession struct {
	Session     Credentials
	StillAlive  []int // the processes of the work that were alive then
	DaemonAlive bool  // the daemon was alive then
}

// recordClosedSession appends a [closedSession] to a file.
func recordClosedSession(dir string, c Credentials) error {
	b := closedSession{Session: c, StillAlive: pidsWithEnv([]string{workEnv(dir)})}
	for _, pid := range pidsWithEnv([]string{"ROLE=daemon", "FIXTURE_DIR=" + dir}) {
		b.DaemonAlive = b.DaemonAlive || alive(pid) && !slices.Contains(commandLine(pid), keeperArgument)
	}
	line, err := json.Marshal(b)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "closed"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	if err == nil && c.ID == unclosableID {
		err = errors.New("no server answers")
	}
	return err
}

func commandLine(pid int) []string {
	return strings.Split(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "\x00")
}

// unclosableID is the id of the session that cannot be closed.
const unclosableID = 13

// workEnv returns a variable that is in the environment of all work of a fixture, and of no other process.
func workEnv(dir string) string { return "ZKELECTD_ROOT=" + dir }

// beDaemon serves [DaemonRPC] until the test closes the connection.
func beDaemon(dir string) int {
	d := &DaemonRPC{signals: make(chan os.Signal, 8)}
	signal.Notify(d.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	var err error
	if d.c, err = Connect(SocketFD, newLog()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	d.c.ReportAlive()
	d.Use("g", nil)
	conn, err := net.Dial("unix", filepath.Join(dir, "control"))
	if err != nil {
		return 0 // the test is over
	}
	s := rpc.NewServer()
	if err := s.RegisterName("Daemon", d); err != nil {
		panic(err)
	}
	s.ServeConn(conn)
	return 0
}

// DaemonRPC has the methods by which a test controls a daemon. Times are relative to now in arguments, and readings of
// CLOCK_BOOTTIME in results.
type DaemonRPC struct {
	c           *Client
	leaderships map[string]*remoteLeadership
	signals     chan os.Signal

	*remoteLeadership // the one in use
}

// remoteLeadership is a leadership and its last work.
type remoteLeadership struct {
	l *Leadership
	w *Work
}

// Use makes all other methods use the leadership with a name, and opens it if there is none.
func (d *DaemonRPC) Use(name string, _ *int) error {
	if d.leaderships == nil {
		d.leaderships = make(map[string]*remoteLeadership)
	}
	if d.leaderships[name] == nil {
		d.leaderships[name] = &remoteLeadership{l: d.c.NewLeadership(name)}
	}
	d.remoteLeadership = d.leaderships[name]
	return nil
}

// Replace opens another leadership with the name of the one in use, as a new instance of the group does, and uses that.
func (d *DaemonRPC) Replace(name string, _ *int) error {
	d.leaderships[name] = nil
	return d.Use(name, nil)
}

func (d *DaemonRPC) Abandon(_ int, _ *int) error {
	d.l.Abandon()
	return nil
}

func (d *DaemonRPC) Close(_ int, _ *int) error {
	d.l.Close()
	return nil
}

// Gone waits until nothing is left of the leadership, which was abandoned.
func (d *DaemonRPC) Gone(_ int, _ *int) error {
	<-d.l.Dead()
	return nil
}

// Hook starts a program as the daemon starts its hooks.
func (d *DaemonRPC) Hook(opt Spec, _ *int) error {
	cmd := exec.Command(opt.Argv[0], opt.Argv[1:]...)
	cmd.Env, cmd.SysProcAttr = opt.Env, &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// HangSearch makes the daemon's search for the descendants of its guard last as long as the daemon.
func (d *DaemonRPC) HangSearch(_ int, _ *int) error {
	d.c.search = func(int, ...int) []int { select {} }
	return nil
}

// Extend extends the lease of the leadership in use as the client would not do.
func (d *DaemonRPC) Extend(ahead time.Duration, at *time.Duration) error {
	*at = (boottime.Now() + ahead).Truncate(time.Microsecond)
	d.l.place.setDeadline(*at)
	d.c.send(message{Kind: kindLease})
	return nil
}

// PrepareUnchecked sends a prepare message that the client would not send, for the leadership in use.
func (d *DaemonRPC) PrepareUnchecked(opt Spec, _ *int) error {
	d.c.send(message{Kind: kindPrepare, Leadership: d.l.id, Seq: 1000, Spec: &Spec{Path: "/bin/sleep", Argv: opt.Argv, Env: opt.Env}})
	d.c.send(message{Kind: kindStart, Seq: 1000})
	return nil
}

// Survivors returns the names of the leaderships whose works have survived an earlier daemon.
func (d *DaemonRPC) Survivors(_ int, names *[]string) error {
	*names = append([]string{}, d.c.Survivors()...)
	return nil
}

func (d *DaemonRPC) SetPendingHooks(hooks []Spec, _ *int) error { return d.l.SetPendingHooks(hooks...) }

func (d *DaemonRPC) Pid(_ int, pid *int) error {
	*pid = os.Getpid()
	return nil
}

func (d *DaemonRPC) SetLease(ahead time.Duration, at *time.Duration) error {
	if ahead != 0 {
		*at = (boottime.Now() + ahead).Truncate(time.Microsecond) // as on the board
	}
	d.l.SetLease(*at)
	return nil
}

// Confirmed returns the lease that the guard enforces.
func (d *DaemonRPC) Confirmed(_ int, at *time.Duration) error {
	*at = d.l.place.enforced()
	return nil
}

func (d *DaemonRPC) Heartbeat(ahead time.Duration, _ *int) error {
	d.c.Heartbeat(boottime.Now() + ahead)
	return nil
}

func (d *DaemonRPC) ReportAlive(_ int, _ *int) error {
	d.c.ReportAlive()
	return nil
}

func (d *DaemonRPC) Notify(state string, _ *int) error {
	d.c.Notify(state)
	return nil
}

// Service returns what the daemon knows of the service manager.
func (d *DaemonRPC) Service(_ int, s *ServiceInfo) error {
	s.WatchdogInterval, s.Env = d.c.WatchdogInterval(), os.Environ()
	return nil
}

// ServiceInfo is the result of [DaemonRPC.Service].
type ServiceInfo struct {
	WatchdogInterval time.Duration
	Env              []string
}

func (d *DaemonRPC) SetSession(c Credentials, _ *int) error {
	d.c.SetSession(c)
	return nil
}

// SetRelease sets the transaction that releases leadership.
func (d *DaemonRPC) SetRelease(tx json.RawMessage, _ *int) error {
	d.l.SetRelease(tx)
	return nil
}

func (d *DaemonRPC) ClearSession(_ int, _ *int) error {
	d.c.ClearSession()
	return nil
}

func (d *DaemonRPC) Start(opt Spec, pid *int) error {
	w, err := d.l.Start(opt)
	if err != nil {
		return err
	}
	d.w, *pid = w, w.Pid()
	return nil
}

// StartIn is Start for the leadership with a name, whichever is in use.
func (d *DaemonRPC) StartIn(arg StartArg, pid *int) error {
	w, err := d.leaderships[arg.Name].l.Start(arg.Options)
	if err == nil {
		*pid = w.Pid()
	}
	return err
}

// StartArg is the argument of [DaemonRPC.StartIn].
type StartArg struct {
	Name    string
	Options Spec
}

// Unkillable returns the reason why the work cannot be killed.
func (d *DaemonRPC) Unkillable(_ int, why *string) error {
	*why = d.l.Unkillable()
	return nil
}

func (d *DaemonRPC) Stop(grace time.Duration, _ *int) error {
	d.w.Stop(grace)
	return nil
}

func (d *DaemonRPC) Kill(_ int, _ *int) error {
	d.w.Kill()
	return nil
}

// ExitInfo describes how work has ended.
type ExitInfo struct {
	Status, Output string
	StillAlive     []int // processes that were alive when the work was reported dead
}

func (d *DaemonRPC) Dead(_ int, e *ExitInfo) error {
	<-d.w.Dead()
	e.StillAlive = pidsWithEnv(d.w.env)
	<-d.w.Exited()
	e.Status, e.Output = d.w.Status(), d.w.Output()
	return nil
}

// Lost waits until the guard is lost, and returns the reason.
func (d *DaemonRPC) Lost(_ int, cause *string) error {
	<-d.c.Context().Done()
	if *cause = d.c.Err().Error(); !errors.Is(d.c.Err(), ErrLost) {
		*cause = "something else: " + *cause
	}
	return nil
}

// Signal waits for a signal and returns it.
func (d *DaemonRPC) Signal(_ int, sig *int) error {
	*sig = int((<-d.signals).(syscall.Signal))
	return nil
}

// SendRaw sends bytes to the guard.
func (d *DaemonRPC) SendRaw(data []byte, _ *int) error {
	_, err := d.c.socket.Write(data)
	return err
}

func (d *DaemonRPC) HangUp(_ int, _ *int) error {
	d.c.Close()
	return nil
}

// Exit exits with a status, or by a panic for status 2, once the reply was sent.
func (d *DaemonRPC) Exit(status int, _ *int) error {
	time.AfterFunc(5*time.Millisecond, func() {
		if status == 2 {
			panic("requested by the test")
		}
		os.Exit(status)
	})
	return nil
}
