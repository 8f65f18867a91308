// Package cli has the commands of zkelectd: how they are called, what they ask of the other packages, and what they
// print.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/sys/asynclog"
)

// Run runs the command line of this process and returns its exit status.
func Run() int {
	cmd := root()
	refuseUnknown(cmd)
	called, err := cmd.ExecuteC()
	err = suggest(cmd, os.Args[1:], sayUsage(called, err))
	var code exitError
	if silent := errors.As(err, &code) && code.err == nil; err != nil && !silent {
		printError(err)
	}
	return exitStatus(err)
}

// refuseUnknown makes the commands that cobra provides, help and completion, fail for names that do not exist.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return suggest(root, args, err)
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it, no arguments are checked
		}
	}
}

// suggest adds the commands that may have been meant to the error of an unknown one.
func suggest(root *cobra.Command, args []string, err error) error {
	if _, _, unknown := root.Find(args); err == nil || unknown == nil {
		return err
	}
	advice := "'zkelectd --help' lists the commands"
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if similar := root.SuggestionsFor(arg); len(similar) > 0 {
			advice = "did you mean " + strings.Join(similar, " or ") + "?"
		}
		break
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// printError prints an error; for an invalid configuration it prints each error on its own line. The process ends even
// if nobody reads its standard error.
func printError(err error) {
	out := asynclog.New(os.Stderr, func(int64) {})
	defer out.Close(2 * time.Second)
	if invalid, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(out, "zkelectd: the configuration is invalid:")
		for _, f := range invalid {
			fmt.Fprintln(out, " ", printableText(f.Error()))
		}
		return
	}
	fmt.Fprintln(out, "zkelectd:", printableText(withConnection(err.Error(), os.Args[1:])))
}

// sayUsage adds the usage to an error about the number of arguments of a command.
func sayUsage(called *cobra.Command, err error) error {
	switch {
	case err == nil || called.HasSubCommands() && !takesArguments(called):
		return err
	case strings.HasPrefix(err.Error(), "accepts "):
		return fmt.Errorf("%s %w; usage: %s", called.Name(), err, called.UseLine())
	case strings.HasPrefix(err.Error(), "unknown command "):
		return fmt.Errorf("%s takes no arguments, only flags; usage: %s", called.Name(), called.UseLine())
	}
	return err
}

// takesArguments reports whether a command has arguments, besides the names of its subcommands.
func takesArguments(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, " ") }

// typedCommand is a command that a text tells people to type.
var typedCommand = regexp.MustCompile(`'zkelectd\s[^']*'`)

// withConnection adds the flags in args that say where the group is to the commands of a text that have none: they work
// when typed.
func withConnection(text string, args []string) string {
	var given []string
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if arg == "--" {
			break
		}
		if name != "--config" && name != "--zk" && name != "--root" {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		given = append(given, name, cluster.ShellWord(value))
	}
	if len(given) == 0 {
		return text
	}
	return typedCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.Contains(command, " --config") || strings.Contains(command, " --zk") ||
			strings.Contains(command, " --root") ||
			strings.Contains(command, " -- ") || strings.Contains(command, " --help") {
			return command
		}
		return strings.TrimSuffix(command, "'") + " " + strings.Join(given, " ") + "'"
	})
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "zkelectd",
		Short: "Elect one leader in a fleet by policy, and run a child process only on the leader",
		Long: `zkelectd runs on every host of a fleet, agrees through Apache ZooKeeper on one
leader, and starts the leader-only child process there and nowhere else.

Settings come from flags, environment variables (ZKELECTD_...), a YAML file
(--config) and defaults, in this order of precedence. See 'zkelectd check --print'.
Commands other than run and check also find their group through /etc/zkelectd.yaml:
see 'zkelectd help connection'.`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// See suggest.
		DisableSuggestions:         true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.SetVersionTemplate("zkelectd {{.Version}}\n")
	cmd.AddGroup(
		&cobra.Group{ID: "run", Title: "Run the daemon:"},
		&cobra.Group{ID: "inspect", Title: "Inspect the group:"},
		&cobra.Group{ID: "operate", Title: "Operate the group:"},
	)
	for _, e := range commands {
		cmd.AddCommand(e.command())
	}
	for _, o := range operations {
		cmd.AddCommand(entry{"operate", allGroups, o.define, o.examples}.command())
	}
	cmd.AddCommand(connectionTopic())
	cmd.SetUsageFunc(usage)
	cmd.AddCommand(buildCommands()...)
	addCompletions(cmd)
	cmd.InitDefaultHelpCmd()
	return cmd
}

// version returns the version that the Go tool has recorded in the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, revision := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(12, len(s.Value))]
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if revision != "" {
		v += " " + revision
	}
	return v + " " + info.GoVersion
}

// entry is a command: its section of the help, what it acts on, how it is called and what it does, and examples for its
// help.
type entry struct {
	section  string
	scope    scope
	define   func(*command)
	examples []string
}

// scope is what a command acts on. It gives the command the flags that say so.
type scope struct {
	flags func(*pflag.FlagSet) // nil for none
	// permit returns an error unless the command may act on a group, or on one leader; nil if it chooses by itself.
	permit func(group) error
}

var (
	nothing      = scope{}
	thisHost     = scope{flags: config.RegisterFlags}
	allGroups    = scope{flags: groupFlags}
	aGroup       = scope{groupFlags, wholeGroup}
	slottedGroup = scope{groupFlags, slotsOnly}
	aLeader      = scope{groupFlags, oneLeader}
)

// commands has all commands, apart from the [operations], and topics of the help.
var commands = []entry{
	{"run", aGroup, initCommand, []string{
		"init --zk zk1:2181 --root /cluster", "init --config /etc/zkelectd.yaml -g billing",
		"init --root /jobs/backup --max 3",
	}},
	{"run", thisHost, runCommand, []string{
		"run --config /etc/zkelectd.yaml",
		"run --zk zk1:2181,zk2:2181,zk3:2181 --root /cluster --id n1 --site dc1 -- /usr/bin/app --serve",
	}},
	{"run", thisHost, daemonCommand, nil},
	{"run", nothing, execCommand, []string{
		"exec -g nightly --once-per 12h -- /usr/local/bin/nightly-report",
		"exec -g cleanup --once-per 50m --wait 30m -- /usr/local/bin/cleanup",
		"exec -g invoices --once-per 23h --at-most-once -- /usr/local/bin/send-invoices",
		"exec -g backup --max 3 --wait 4h -- /usr/local/bin/backup",
	}},
	{"run", nothing, execDaemonCommand, nil},
	{"run", nothing, execJobCommand, nil},
	{"run", nothing, releaseCommand, []string{"release", "release --session-file /run/zkelectd/session"}},
	{"run", nothing, reloadCommand, []string{
		"reload --config /etc/zkelectd.yaml", "reload --config /etc/zkelectd.yaml --allow-removals --timeout 1m",
	}},
	{"run", nothing, admitCommand, []string{
		"admit /run/zkelectd/admit.sock", "admit /run/zkelectd-billing/admit.sock",
	}},
	{"run", thisHost, checkCommand, []string{
		"check --config /etc/zkelectd.yaml", "check --config /etc/zkelectd.yaml --print -g billing",
	}},
	{"run", thisHost, doctorCommand, []string{
		"doctor --config /etc/zkelectd.yaml", "doctor -o json",
	}},
	{"run", thisHost, probeCommand, []string{"probe /livez", "probe /readyz --http unix:/run/zkelectd/api.sock"}},
	{"inspect", allGroups, statusCommand, []string{
		"status --config /etc/zkelectd.yaml", "status -g billing --watch", "status --root /zk -o wide",
		"status --check",
	}},
	{"inspect", aLeader, leaderCommand, []string{
		"leader --zk zk1:2181 --root /cluster", "leader -g ingest/3", "leader --is --id n1",
		"leader --is --config /etc/zkelectd.yaml -g billing",
	}},
	{"inspect", aLeader, explainCommand, []string{"explain -g billing", "explain --term 1795359008"}},
	{"inspect", allGroups, whatifCommand, []string{"whatif --without n1", "whatif --all", "whatif --policy new.yaml"}},
	{"inspect", aLeader, historyCommand, []string{"history -n 50", "history --follow -o json", "history --fencing"}},
	{"operate", allGroups, moveCommand, []string{
		`move n4 --for 2h --wait --reason "kernel patch on n1"`, "move --wait", "move --dry-run", "move dc2",
		"move --to n4 --force",
	}},
	{"operate", allGroups, reelectCommand, []string{
		"reelect", "reelect --wait -g billing", "reelect --all --dry-run", "reelect --all --yes --parallel 5",
	}},
	{"operate", slottedGroup, slotsCommand, []string{
		"slots -g ingest", "slots 8 -g ingest", "slots 8 --per-node 2 -g ingest",
	}},
	{"operate", aGroup, policyCommand, []string{
		"policy -g billing", "policy --apply new.yaml --dry-run",
		"policy --apply --config /etc/zkelectd.yaml -g billing",
	}},
	{"operate", allGroups, aclCommand, []string{
		"acl --config /etc/zkelectd.yaml", "acl --apply --config /etc/zkelectd.yaml --dry-run",
		"acl --rotate-keys -g billing",
	}},
	{"operate", aGroup, repairCommand, []string{"repair --dry-run", "repair policy --file /etc/zkelectd.yaml"}},
	{"operate", aGroup, groupCommand, []string{
		"group delete -g svc-07", "group delete -g svc-07 --dry-run", "group delete --root /jobs -g nightly --yes",
	}},
	{"operate", aLeader, fenceCommand, []string{"fence n1 --dry-run", "fence n1 -g billing"}},
	{"operate", aLeader, forceCommand, []string{
		"force --dry-run", `force -g billing --reason "rack 7 has burned down"`,
		"force -g billing --confirm billing:1795359008",
	}},
	{"operate", aLeader, gamedayCommand, []string{
		"gameday --config /etc/zkelectd.yaml --takeover 20s", "gameday -g billing --yes",
	}},
}

// command is a command while it is defined. What it does is one of run, runMany and RunE.
type command struct {
	*cobra.Command
	// check refuses a command line before there is a connection.
	check func(args []string) error
	// run acts on one group, or on one leader, and runMany on all groups that the command line names.
	run     func(ctx context.Context, g group, args []string) error
	runMany func(ctx context.Context, s selection, args []string) error
	// endless is set if the command runs until it is interrupted, which is no error then.
	endless *bool
}

// command returns the command for the command line.
func (e entry) command() *cobra.Command {
	c := &command{Command: &cobra.Command{Args: cobra.NoArgs, GroupID: e.section}}
	if e.scope.flags != nil {
		e.scope.flags(c.Flags())
	}
	e.define(c)
	if c.RunE == nil {
		c.RunE = func(_ *cobra.Command, args []string) error { return c.connectAndRun(e.scope, args) }
	}
	if len(e.examples) > 0 {
		c.Example = "  zkelectd " + strings.Join(e.examples, "\n  zkelectd ")
	}
	return c.Command
}

func (c *command) connectAndRun(of scope, args []string) error {
	if c.check != nil {
		if err := c.check(args); err != nil {
			return err
		}
	}
	run := func() error {
		return withSelection(c.Command, func(ctx context.Context, s selection) error {
			if c.runMany != nil {
				return c.runMany(ctx, s, args)
			}
			return s.withOnly(ctx, of.permit, func(ctx context.Context, g group) error { return c.run(ctx, g, args) })
		})
	}
	if c.endless != nil && *c.endless {
		return untilInterrupted(c.Command, run)
	}
	return run()
}
