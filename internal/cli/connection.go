package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
)

// hostFile is the configuration file of this host's daemon.
var hostFile = "/etc/zkelectd.yaml"

// places returns where a command looks for its configuration.
func places(cmd *cobra.Command) config.Places {
	p := config.Places{HostFile: hostFile, Getenv: os.Getenv}
	if f := cmd.Flags().Lookup("config"); f != nil {
		p.Explicit = f.Value.String()
	}
	p.Enough, p.HostOnly = cmd.Annotations[aboutThisHost], cmd.Annotations[aboutThisHost] != ""
	return p
}

// aboutThisHost is the annotation of a command about the daemon of this host. Its value is the setting that is enough for it.
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

// commandSources returns the sources of the configuration of a command other than run. A file with a policy that the command was given
// also says how to connect, unless a group is named: that is one below the root of a host.
func commandSources(cmd *cobra.Command) (config.Sources, error) {
	p := places(cmd)
	if by, err := chosen(cmd, os.Getenv); err == nil && by.name == "" {
		p.Argument = cmd.Annotations[policyFile]
	}
	return p.Find(config.Sources{Env: os.Environ(), Flags: cmd.Flags()})
}

// connectError adds to the error of a connection where its address comes from, and how to name another one.
func connectError(err error, from config.From) error {
	where := "zookeeper.servers has its default"
	if source := from.Source("zookeeper.servers"); source != "" {
		where = "zookeeper.servers is from " + source
	} else if from.File != "" {
		where += ", as " + from.File + " does not set it"
	}
	return fmt.Errorf("%w; %s: to use others, add --zk or --config", err, where)
}

// accessError adds to the error of a file with credentials or certificates what a user can do who may not read it.
func accessError(err error, from config.From) error {
	if !errors.Is(err, fs.ErrPermission) || from.File != hostFile {
		return err
	}
	return fmt.Errorf("%w; use sudo, or --config with a file of your own", err)
}
