package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/web"
	"zkelectd/internal/work/admission"
)

func runCommand(c *command) {
	c.Use = "run [flags] [-- command args...]"
	c.Short = "Join the group, take part in elections, and lead when elected"
	c.Long = `Run joins the group and takes part in its elections until it is stopped.
When this daemon is elected, it starts the leader-only child; everything after
-- is its command.

Run has three processes: this one is the small guard, which starts the daemon
and the keeper. The daemon talks to ZooKeeper and decides. The keeper starts the
leader-only child. The guard kills the child when leadership may have ended,
even if the daemon hangs; if the guard fails, the daemon and the keeper kill the
child. When the daemon dies, the guard closes its session, so that the next leader
need not wait, and starts the daemon again, with the configuration that was in
force: changes of the file that need a restart stay pending.

A host that has never been in the group does not create it: with a mistyped root or
server, the work would run a second time. It says so and waits until 'zkelectd init'
has created the group, unless --create is given.

SIGTERM and SIGINT stop the child, release leadership and exit; a second one
kills the child at once. SIGHUP reloads the configuration. The exit status is
that of the daemon.`
	c.Args = childArgs
	createFlag(c)
	noRespawn := c.Flags().Bool("no-respawn", false, "exit when the daemon dies, instead of starting it again")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		signals := guard.CatchReload()
		return withStatus(daemon.RunGuard(cmd.Context(), daemon.GuardOptions{
			Sources: sources(cmd, args), Argv: daemonArgs(os.Args), Respawn: !*noRespawn, Signals: signals,
		}))
	}
}

// createFlag adds the flag with which run creates the group.
func createFlag(c *command) *bool {
	return c.Flags().Bool("create", false, "create the group if it does not exist, even if this host has never been in it")
}

// withStatus returns the end of a process as the error of its command.
func withStatus(status int, err error) error {
	if status == 0 {
		return err
	}
	return exitError{status, err}
}

// daemonArgs returns the arguments of this process with the command replaced.
func daemonArgs(own []string) []string {
	argv := slices.Clone(own)
	if i := slices.Index(argv[1:], "run"); i >= 0 {
		argv[1+i] = daemonCommandName
	}
	return argv
}

const daemonCommandName = "daemon"

// daemonCommand is the command that the guard starts, with the flags of run.
func daemonCommand(c *command) {
	c.Use = daemonCommandName
	c.Hidden = true
	c.Args = childArgs
	c.Flags().Bool("no-respawn", false, "") // used by the guard
	create := createFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withStatus(daemon.Main(cmd.Context(), sources(cmd, args), version(), *create))
	}
}

// childArgs permits arguments after -- only.
func childArgs(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("%q is not a flag; the child's command goes after --", args[0])
	}
	return nil
}

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

What has changed in the policy of the file is published for the whole group; where the
rest is not the policy in force, reload only says so. An invalid configuration, a policy
without an eligible member, and a change of what another host has changed meanwhile are
refused: the running configuration stays in force, and status and metrics say so.
'zkelectd policy --apply --force' publishes a policy without an eligible member. Settings
that need a restart stay pending, which they say, too.

With groups_dir, a refused group file leaves its group as it is. Files can vanish by
accident: if the directory is missing or empty, or if more than a fifth of the groups
(at least two) are gone, everything is refused. --allow-removals (SIGUSR1) ends these
groups on this host.`
	output := c.outputFlag()
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		var result host.ReloadResult
		err := atDaemon(cmp.Or(configFile(cmd), hostFile), func(socket string) (err error) {
			result, err = askAt(ctx, socket, r)
			return err
		})
		if errors.Is(err, errNoDaemon) {
			return fmt.Errorf("%w, or send its process SIGHUP", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return exitError{statusTimedOut, fmt.Errorf("the daemon has not answered within %s: it goes "+
				"on; see its log", timeout)}
		}
		if err != nil {
			return err
		}
		text, err := describeReload(result)
		if *output == "json" {
			return errors.Join(printJSON(cmd.OutOrStdout(), result), err)
		}
		fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	config.RegisterFile(c.Flags())
	c.Flags().BoolVar(&r.AllowRemovals, "allow-removals", false,
		"end the groups whose files are gone, however many they are")
	durationFlag(c, &timeout, "timeout", 30*time.Second, "how long to wait for the daemon")
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
	response, err := web.Endpoint{Addr: "unix:" + socket, Setting: "the socket"}.Send(ctx, http.MethodPost,
		daemon.ReloadPath, bytes.NewReader(body))
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
	var refused, more []string
	for _, g := range r.Groups {
		name := g.Name + ": "
		if r.Single {
			name, done = "", done+": "+printable(g.Changed)
		}
		switch {
		case g.Refused != "":
			refused = append(refused, g.Refused)
		case g.Removed:
			fmt.Fprintf(&text, "%s: removed; this host leaves it once its work has ended\n", printable(g.Name))
		case g.Changed != host.NothingChanged && !r.Single:
			fmt.Fprintf(&text, "%s: %s\n", printable(g.Name), printable(g.Changed))
		}
		for _, line := range g.Published {
			more = append(more, printable(name+"for the whole group: "+line))
		}
		for _, line := range g.Unpublished {
			more = append(more, printable(name+"not published: "+line))
		}
		for _, line := range g.Blocked {
			more = append(more, printable(name+line))
		}
	}
	if r.Refused != "" {
		return "", refuse("reload refused, the running configuration stays in force:\n%s", printableText(r.Refused))
	}
	var err error
	if len(refused) > 0 {
		err = exitError{statusFailed, fmt.Errorf("reloaded, but these groups stay as they are:\n%s",
			printableText(strings.Join(refused, "\n")))}
	} else {
		fmt.Fprintln(&text, done)
	}
	for _, line := range more {
		fmt.Fprintln(&text, line)
	}
	return text.String(), err
}

func releaseCommand(c *command) {
	var file string
	c.Use = "release [--session-file F]"
	c.Hidden = true
	c.Short = "Close the session that a dead zkelectd left behind"
	c.Long = `Release closes the ZooKeeper session of a zkelectd that was killed together with
its guard, so that the next leader need not wait for the session to expire. It
is meant for ExecStopPost= in a systemd unit. It kills what is left of the
leader-only work, and runs hooks.post_stop if it is pending. It refuses while the
guard or the daemon still runs, for which it waits for the kill margin at most, or
while it can't be proven that all of the work is dead. It says so if there is
nothing to release.`
	c.Flags().StringVar(&file, "session-file", config.Config{}.SessionFile(os.Getenv),
		"the session file of zkelectd (zookeeper.session_file)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return errors.New("--session-file is not set: name the zookeeper.session_file of the daemon")
		}
		if !guard.SessionFileUsed(file) {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "nothing to release: zkelectd has never run with the "+
				"session file %s\n", file)
			return err
		}
		lock, err := daemon.LockSessionFile(cmd.Context(), file)
		if err != nil {
			return err
		}
		defer lock.Close()
		err = daemon.CleanUp(cmd.Context(), file, cmd.OutOrStdout())
		if errors.Is(err, daemon.ErrNothingLeft) {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing to release: there is no session file %s, so the last "+
				"zkelectd has closed its session\n", file)
		}
		return err
	}
}

// statusNotAdmitted makes the unit fail; another exit status of ExecCondition= would only skip its start.
const statusNotAdmitted = 255

func admitCommand(c *command) {
	c.Use, c.Short = "admit SOCKET", "Let a leader-only unit start only if this host leads"
	c.Hidden, c.Args = true, cobra.ExactArgs(1)
	c.Long = `Admit is for ExecCondition=+ in the drop-in of a unit that is a group's
leader-only work (child.unit). It runs as root and asks the daemon at SOCKET. It
refuses the start unless zkelectd leads with this unit. The kernel must confirm
that the processes that answer are a daemon and its guard, run this program, and
run as the owner of the socket's directory. Then it writes the fencing token and
the other ZKELECTD_ variables into ` + admission.EnvDir + `/UNIT.env, and grants
the guard the right to kill the unit's control group when leadership may have
ended.

It opens no file that the daemon's user can write, and takes no longer than
` + admission.Timeout.String() + `.`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := admission.Admit(cmd.Context(), args[0], admission.EnvDir); err != nil {
			return exitError{statusNotAdmitted, err}
		}
		return nil
	}
}

func probeCommand(c *command) {
	var timeout time.Duration
	c.Use = "probe [" + strings.Join(web.ProbePaths(), "|") + "]"
	c.Hidden = true
	c.Short = "Probe the daemon on this host: exit 0 for yes, 1 for no"
	c.Long = `Probe sends one of the HTTP probes, /livez by default, to the daemon on this host, at
http.listen. Give it the settings of the daemon. It is meant for health checks in
containers without another HTTP client. No answer is a no. A wrong command line or
configuration is neither: the exit status is 2.`
	c.Args = cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)
	c.ValidArgs = web.ProbePaths()
	concernsHost(c.Command, "http.listen")
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "how long to wait for the answer")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := loadHost(cmd)
		if err != nil {
			return err
		}
		endpoint, err := endpointOf(h)
		if err != nil {
			return err
		}
		if endpoint.Addr == "" {
			return errors.New("http.listen is not set: set it as for the daemon (--http, ZKELECTD_HTTP_LISTEN or --config)")
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		path := append(args, "/livez")[0]
		if err := endpoint.Probe(ctx, path, ""); err != nil {
			return exitError{statusNo, fmt.Errorf("%s: no: %w", path, err)}
		}
		return nil
	}
}
