package guard

import (
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// notifier reports the daemon's state to the service manager, by the protocol of sd_notify(3). The manager accepts
// messages from the main process only, which is the guard. The methods of a nil notifier do nothing. sd.SdNotify is not
// used, because it blocks while the manager does not read: nothing may delay the goroutine that kills the work at the
// end of the lease.
type notifier struct {
	socket   int
	to       *unix.SockaddrUnix
	watchdog time.Duration // the manager expects a sign of life within this time; 0 for no watchdog
	lastFed  time.Duration // when the watchdog was fed last
	pending  []string      // messages that did not fit into the socket's buffer, oldest first
	stopping bool
}

// maxPending is how many messages are kept for a manager that does not read.
const maxPending = 16

// newNotifier reads the manager's socket from the environment and removes it there, so that no other process uses it.
// It returns nil without a service manager.
func newNotifier(log *slog.Logger) *notifier {
	name := os.Getenv("NOTIFY_SOCKET")
	watchdog, err := sd.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("cannot feed the service manager's watchdog", "err", err)
	}
	os.Unsetenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		log.Warn("cannot notify the service manager", "err", err)
		return nil
	}
	return &notifier{socket: socket, to: &unix.SockaddrUnix{Name: name}, watchdog: watchdog}
}

// environment returns the variables that tell the daemon how often it has to show that it is alive.
func (n *notifier) environment() []string {
	if n == nil || n.watchdog == 0 {
		return nil
	}
	return []string{watchdogVariable + "=" + strconv.FormatInt(n.watchdog.Microseconds(), 10)}
}

const watchdogVariable = "WATCHDOG_USEC"

// notify sends a message, now or as soon as it fits into the socket's buffer.
func (n *notifier) notify(text string) {
	if n == nil {
		return
	}
	if n.stopping {
		// A daemon that becomes ready while it is being stopped must not report that any more.
		if text = strings.TrimPrefix(text, sd.SdNotifyReady+"\n"); text == sd.SdNotifyReady {
			return
		}
	}
	n.pending = append(n.pending, text)
	if over := len(n.pending) - maxPending; over > 0 {
		n.pending = n.pending[over:]
	}
	n.flush()
}

// flush sends the pending messages that fit into the socket's buffer. It drops them if the manager is gone.
func (n *notifier) flush() {
	for len(n.pending) > 0 {
		if errors.Is(n.send(n.pending[0]), unix.EAGAIN) {
			return
		}
		n.pending = n.pending[1:]
	}
	n.pending = nil
}

func (n *notifier) send(text string) error {
	return unix.Sendto(n.socket, []byte(text), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, n.to)
}

// feedWatchdog feeds the manager's watchdog, as the daemon has just shown that it is alive.
func (n *notifier) feedWatchdog() {
	if n == nil {
		return
	}
	n.flush()
	if now := boottime.Now(); n.watchdog > 0 && (n.lastFed == 0 || now-n.lastFed >= n.watchdog/4) &&
		n.send(sd.SdNotifyWatchdog) == nil {
		n.lastFed = now
	}
}

// notifyStopping tells the manager, once, that the service is stopping.
func (n *notifier) notifyStopping() {
	if n != nil && !n.stopping {
		n.stopping = true
		n.notify(sd.SdNotifyStopping)
	}
}

// watchdogInterval returns, in the daemon, how often it has to show that it is alive for the service manager's
// watchdog; 0 for never.
func watchdogInterval(log *slog.Logger) time.Duration {
	every, err := sd.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("cannot feed the service manager's watchdog", "err", err)
	}
	return every / 4
}
