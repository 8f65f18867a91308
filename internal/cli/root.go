// Package cli has the commands of zkelectd: how they are called, what they ask of the other packages, and what they print.
package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/sys/asynclog"
)

// Run runs the command line of this process and returns its exit status.
func Run() int {
	err := root().Execute()
	var code exitError
	if silent := errors.As(err, &code) && code.err == nil; err != nil && !silent {
		printError(err)
	}
	return exitStatus(err)
}

// printError prints an error; for an invalid configuration it prints each error on its own line. The process ends even if
// nobody reads its standard error.
func printError(err error) {
	out := asynclog.New(os.Stderr, func(int64) {})
	defer out.Close(2 * time.Second)
	var invalid config.Errors
	if errors.As(err, &invalid) {
		fmt.Fprintln(out, "zkelectd: the configuration is invalid:")
		for _, f := range invalid {
			fmt.Fprintln(out, " ", printableText(f.Error()))
		}
		return
	}
	fmt.Fprintln(out, "zkelectd:", printableText(err.Error()))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "zkelectd",
		Short: "Elect one leader in a fleet by policy, and run a child process only on the leader",
		Long: `zkelectd runs on every host of a fleet, agrees through Apache ZooKeeper on one
leader, and starts the leader-only child process there and nowhere else.

Settings come from flags, environment variables (ZKELECTD_...), a YAML file
(--config) and defaults, in this order of precedence. See 'zkelectd check'.
Commands other than run and check also find their group through /etc/zkelectd.yaml.`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
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
	cmd.AddCommand(buildCommands()...)
	addCompletions(cmd)
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
