package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/host"
)

func reloadCommand(c *command) {
	var r host.ReloadRequest
	var timeout time.Duration
	c.Use = "reload"
	c.Short = "Have this host's daemon reload its configuration, and report the result"
	c.Long = `Reload asks the daemon that runs with this configuration file on this host to reload
its configuration, and reports the result. The path of the file names the daemon
(default: $ZKELECTD_CONFIG, or /etc/zkelectd.yaml); in a unit, it is the daemon of
$RUNTIME_DIRECTORY. The file is read by the daemon only. Signal SIGHUP does the same
without a report.

A changed policy is published for the whole group. An invalid configuration, or a
policy without an eligible member, is refused: the running configuration stays in
force, and status and metrics say so. Settings that need a restart stay pending, which
they say, too.

With groups_dir, a refused group file leaves its group as it is. Files can vanish by
accident: if the directory is missing or empty, or if more than a fifth of the groups
(at least two) are gone, everything is refused. --allow-removals (SIGUSR1) ends these
groups on this host.`
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		result, err := askToReload(ctx, cmp.Or(configFile(cmd), hostFile), r)
		if errors.Is(err, context.DeadlineExceeded) {
			return exitError{statusTimedOut, fmt.Errorf("the daemon has not answered within %s: it goes on; see its log", timeout)}
		}
		if err != nil {
			return err
		}
		text, err := describeReload(result)
		fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	config.RegisterFile(c.Flags())
	c.Flags().BoolVar(&r.Force, "force", false, "publish the policy of the configuration, even if no member is eligible under it")
	c.Flags().BoolVar(&r.AllowRemovals, "allow-removals", false, "end the groups whose files are gone, however many they are")
	durationFlag(c, &timeout, "timeout", 30*time.Second, "how long to wait for the daemon")
}

// askToReload asks the daemon that runs with a configuration file to reload it.
func askToReload(ctx context.Context, file string, r host.ReloadRequest) (result host.ReloadResult, err error) {
	err = atDaemon(file, func(socket string) error {
		result, err = askAt(ctx, socket, r)
		return err
	})
	if errors.Is(err, errNoDaemon) {
		err = fmt.Errorf("%w, or send its process SIGHUP", err)
	}
	return result, err
}

// errNoDaemon is the error if no daemon answers for a configuration file.
var errNoDaemon = errors.New("name the file that it was started with (--config), run this as its user or as root")

// atDaemon calls f with the socket of the daemon that runs with a configuration file on this host.
func atDaemon(file string, f func(socket string) error) error {
	sockets, err := daemon.ReloadSockets(file)
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		err := f(socket)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist): // left by a daemon that was killed
			continue
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf("%w: the daemon runs as another user; use sudo", err)
		}
		return err
	}
	return fmt.Errorf("no zkelectd that this user can ask runs with %s here: %w", file, errNoDaemon)
}

// maxAnswerToReload bounds what is read, in bytes.
const maxAnswerToReload = 16 << 20

// askAt asks the daemon at a socket to reload its configuration.
func askAt(ctx context.Context, socket string, r host.ReloadRequest) (host.ReloadResult, error) {
	var result host.ReloadResult
	body, err := json.Marshal(r)
	if err != nil {
		return result, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+daemon.ReloadPath, strings.NewReader(string(body)))
	if err != nil {
		return result, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return result, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerToReload))
	switch {
	case err != nil:
		return result, fmt.Errorf("the daemon's answer was cut off: %w", err)
	case response.StatusCode != http.StatusOK:
		return result, errors.New(printable(strings.TrimSpace(string(answer))))
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return result, fmt.Errorf("the answer at %s is not that of zkelectd: %w", socket, err)
	}
	return result, nil
}

// describeReload returns what has changed, and an error if something was refused.
func describeReload(r host.ReloadResult) (string, error) {
	done := printable(r.Node) + " has reloaded its configuration"
	var text strings.Builder
	var refused, blocked []string
	for _, g := range r.Groups {
		name := g.Name + ": "
		if r.Single {
			name, done = "", done+": "+printable(g.Changed)
		}
		switch {
		case g.Refused != "":
			refused = append(refused, g.Refused)
		case g.Removed:
			fmt.Fprintf(&text, "%s: left\n", printable(g.Name))
		case g.Changed != host.NothingChanged && !r.Single:
			fmt.Fprintf(&text, "%s: %s\n", printable(g.Name), printable(g.Changed))
		}
		for _, line := range g.Blocked {
			blocked = append(blocked, printable(name+line))
		}
	}
	if r.Refused != "" {
		return "", refuse("reload refused, the running configuration stays in force:\n%s", printableText(r.Refused))
	}
	var err error
	if len(refused) > 0 {
		err = exitError{statusFailed, fmt.Errorf("reloaded, but these groups stay as they are:\n%s", printableText(strings.Join(refused, "\n")))}
	} else {
		fmt.Fprintln(&text, done)
	}
	for _, line := range blocked {
		fmt.Fprintln(&text, line)
	}
	return text.String(), err
}
