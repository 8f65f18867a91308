package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zkelectd/internal/config"
)

// connectionSet returns the flags for the connection, which nearly all commands have.
func connectionSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	config.RegisterConnection(flags)
	return flags
}

// connectionTopic returns the topic of the help that describes the flags for the connection once for all commands.
func connectionTopic() *cobra.Command {
	return &cobra.Command{
		Use: "connection", Short: "How a command finds ZooKeeper and the group: --config, --zk, --root and other flags",
		Long: `A command takes its connection to ZooKeeper from the first of these:

  1. the file of --config
  2. FILE of policy --apply, whatif --policy or repair --file, if it has a section
     zookeeper, and -g does not name a group
  3. the file that $ZKELECTD_CONFIG names
  4. ` + hostFile + `, the file of this host's daemon
  5. the defaults

run and check read a file only if --config or $ZKELECTD_CONFIG names it. A flag, or an
environment variable such as ZKELECTD_ZOOKEEPER_ROOT, replaces a single setting. If --zk
or ZKELECTD_ZOOKEEPER_SERVERS names the servers, ` + hostFile + ` is not read.

Credentials and TLS have no flags: they are the settings zookeeper.auth, zookeeper.sasl
and zookeeper.tls of the file, or environment variables. They go only to the servers that
the same source names. -g, where a command has it, names the group below the root.

Flags:
` + connectionSet().FlagUsages(),
	}
}

// connectionFlags returns the flags of a command that the topic describes; none if they are not about a connection.
func connectionFlags(cmd *cobra.Command) (found []*pflag.Flag) {
	if cmd.Flags().Lookup("zk") == nil {
		return nil // its --config names a daemon
	}
	connectionSet().VisitAll(func(f *pflag.Flag) { found = append(found, cmd.Flags().Lookup(f.Name)) })
	return found
}

// listed returns the names of flags in a sentence.
func listed(flags []*pflag.Flag) string {
	var names []string
	for _, f := range flags {
		names = append(names, "--"+f.Name)
	}
	return strings.Join(names, ", ")
}

// usage prints how a command is called. The flags for the connection are named in one line.
func usage(cmd *cobra.Command) error {
	connection := connectionFlags(cmd)
	for _, f := range connection {
		f.Hidden = true
		defer func() { f.Hidden = false }()
	}
	if err := new(cobra.Command).UsageFunc()(cmd); err != nil || len(connection) == 0 {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStderr(), "\nConnection: %s; see 'zkelectd help connection'\n", listed(connection))
	return err
}
