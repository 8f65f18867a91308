package guard

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// NotIgnored returns the signals that were not ignored when this process was started, as nohup(1) does for SIGHUP, and
// a shell for a command in the background for SIGINT and SIGQUIT: those stay ignored. The Go runtime hides that of
// SIGQUIT, so it goes with SIGINT; and that of SIGTERM, which always counts.
func NotIgnored(signals ...os.Signal) []os.Signal {
	quiet := signal.Ignored(syscall.SIGINT)
	return slices.DeleteFunc(slices.Clone(signals), func(sig os.Signal) bool {
		if sig == syscall.SIGQUIT && quiet {
			signal.Ignore(sig)
			return true
		}
		return signal.Ignored(sig)
	})
}

// reloads are the signals that ask the daemon for a reload. Until it handles them, they would end it.
var reloads = []os.Signal{syscall.SIGHUP, syscall.SIGUSR1}

// CatchReload keeps the signals that ask for a reload from ending this process before [Run], which then finds them in
// the channel.
func CatchReload() chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, NotIgnored(reloads...)...)
	return c
}

// handleSignal passes signals on to the daemon and takes note of those that ask the guard to exit.
func (g *guard) handleSignal(sig syscall.Signal) {
	if sig == syscall.SIGCHLD {
		g.reap()
		return
	}
	if slices.Contains(reloads, os.Signal(sig)) {
		if d := g.daemon; d != nil && d.listens {
			syscall.Kill(d.pid, sig)
		} else if !slices.Contains(g.early, sig) {
			g.early = append(g.early, sig)
		}
		return
	}
	g.stopping = true
	g.notifier.notifyStopping()
	if g.daemon != nil {
		syscall.Kill(g.daemon.pid, sig)
	} else {
		g.noRespawn, g.exitStatus = true, 128+int(sig)
	}
}

// daemonListens passes on what has arrived before the daemon handled signals.
func (g *guard) daemonListens() {
	g.daemon.listens = true
	for _, sig := range g.early {
		syscall.Kill(g.daemon.pid, sig)
	}
	g.early = nil
}
