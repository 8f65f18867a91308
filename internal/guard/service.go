package guard

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// service tells the service manager how the daemon is, by the protocol of sd_notify(3): it listens to the main process
// only, which is the guard. A nil service tells nobody. sd.SdNotify is not used, because it waits for a manager that
// does not read: nothing may hold up the one goroutine that ends the work with its lease.
type service struct {
	socket   int
	to       *unix.SockaddrUnix
	watchdog time.Duration // the manager wants to hear of life within it; 0 if it does not care
	fed      time.Duration
	unsaid   []string // what it had no room for, oldest first
	stopping bool
}

// maxUnsaid bounds what is kept for a manager that does not read.
const maxUnsaid = 16

// openService finds the service manager in the environment and takes it out there, so that nobody else talks to it.
func openService(log *slog.Logger) *service {
	name := os.Getenv("NOTIFY_SOCKET")
	watchdog, err := sd.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("the service manager's watchdog is not fed", "err", err)
	}
	os.Unsetenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		log.Warn("the service manager is told nothing", "err", err)
		return nil
	}
	return &service{socket: socket, to: &unix.SockaddrUnix{Name: name}, watchdog: watchdog}
}

func (s *service) close() {
	if s != nil {
		unix.Close(s.socket)
	}
}

// environment lets the daemon know how often it has to show that it is alive.
func (s *service) environment() []string {
	if s == nil || s.watchdog == 0 {
		return nil
	}
	return []string{watchdogVariable + "=" + strconv.FormatInt(s.watchdog.Microseconds(), 10)}
}

const watchdogVariable = "WATCHDOG_USEC"

// say passes on a message, now or as soon as there is room for it.
func (s *service) say(text string) {
	if s == nil {
		return
	}
	if s.stopping {
		// What a daemon says of its readiness while it is being stopped comes too late.
		if text = strings.TrimPrefix(text, sd.SdNotifyReady+"\n"); text == sd.SdNotifyReady {
			return
		}
	}
	s.unsaid = append(s.unsaid, text)
	if over := len(s.unsaid) - maxUnsaid; over > 0 {
		s.unsaid = s.unsaid[over:]
	}
	s.flush()
}

// flush says what is unsaid, as far as there is room. A manager that is gone is not waited for.
func (s *service) flush() {
	for len(s.unsaid) > 0 {
		if s.send(s.unsaid[0]) == unix.EAGAIN {
			return
		}
		s.unsaid = s.unsaid[1:]
	}
	s.unsaid = nil
}

func (s *service) send(text string) error {
	return unix.Sendto(s.socket, []byte(text), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, s.to)
}

// alive feeds the manager's watchdog: the daemon has just shown that it works.
func (s *service) alive() {
	if s == nil {
		return
	}
	s.flush()
	if now := boottime.Now(); s.watchdog > 0 && (s.fed == 0 || now-s.fed >= s.watchdog/4) && s.send(sd.SdNotifyWatchdog) == nil {
		s.fed = now
	}
}

// stop says that the end is near.
func (s *service) stop() {
	if s != nil && !s.stopping {
		s.stopping = true
		s.say(sd.SdNotifyStopping)
	}
}

// askedToBeat is the daemon's side: how often the guard wants to hear of it on behalf of the service manager.
func askedToBeat(log *slog.Logger) time.Duration {
	every, err := sd.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("the service manager's watchdog is not fed", "err", err)
	}
	return every / 4
}
