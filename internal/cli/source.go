package cli

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

// loadHost returns the configuration of a command for one group or for many.
func loadHost(cmd *cobra.Command) (config.Host, error) {
	src, err := commandSources(cmd)
	if err != nil {
		return config.Host{}, err
	}
	h, ignored, err := config.LoadCommand(src)
	if ignored != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: files of groups are ignored, %s shows why\n",
			cluster.InGroup("'zkelectd check --config %s'", "", src.File))
	}
	return h, err
}

// sources returns the sources of the configuration of a command.
func sources(cmd *cobra.Command, child []string) config.Sources {
	return config.Sources{File: configFile(cmd), Env: os.Environ(), Flags: cmd.Flags(), Command: child}
}

// configFile returns the configuration file that --config or the environment names; empty for none.
func configFile(cmd *cobra.Command) string {
	return cmp.Or(cmd.Flags().Lookup("config").Value.String(), os.Getenv(config.EnvConfig))
}

// hostFile is the configuration file of this host's daemon.
var hostFile = "/etc/zkelectd.yaml"

// aboutThisHost is the annotation of a command about the daemon of this host. Its value is the setting that is enough
// for it.
const aboutThisHost = "zkelectd/about-this-host"

// concernsHost says that a command is about the daemon of this host.
func concernsHost(cmd *cobra.Command, enough string) {
	cmd.Annotations = map[string]string{aboutThisHost: enough}
}

// policyFile is the annotation of a command with the file of the policy that it was given.
const policyFile = "zkelectd/policy-file"

// policyFrom says that a command was given a file with a policy, "" for none.
func policyFrom(cmd *cobra.Command, file string) {
	cmd.Annotations = map[string]string{policyFile: file}
}

// commandSources returns the sources of the configuration of a command other than run. A file with a policy that the
// command was given also says how to connect, unless a group is named: that is one below the root of a host.
func commandSources(cmd *cobra.Command) (config.Sources, error) {
	enough := cmd.Annotations[aboutThisHost]
	p := config.Places{HostFile: hostFile, Getenv: os.Getenv, Enough: enough, HostOnly: enough != ""}
	if f := cmd.Flags().Lookup("config"); f != nil {
		p.Explicit = f.Value.String()
	}
	if by, err := chosen(cmd, os.Getenv); err == nil && by.name == "" {
		p.Argument = cmd.Annotations[policyFile]
	}
	return p.Find(config.Sources{Env: os.Environ(), Flags: cmd.Flags()})
}
