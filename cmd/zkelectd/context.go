package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

// hostFile is the configuration file of this host's daemon.
var hostFile = "/etc/zkelectd.yaml"

// places returns where a command looks for its configuration.
func places(cmd *cobra.Command) config.Places {
	p := config.Places{HostFile: hostFile, Getenv: os.Getenv}
	if f := cmd.Flags().Lookup("config"); f != nil {
		p.Explicit = f.Value.String()
	}
	if f := cmd.Flags().Lookup("context"); f != nil {
		p.ExplicitContext = f.Value.String()
	}
	p.Enough, p.HostOnly = cmd.Annotations[aboutThisHost], cmd.Annotations[aboutThisHost] != ""
	return p
}

// aboutThisHost is the annotation of a command about the daemon of this host. Its value is the setting that is enough for it.
const aboutThisHost = "zkelectd/about-this-host"

// concernsHost says that a command is about the daemon of this host, to which contexts do not apply.
func concernsHost(cmd *cobra.Command, enough string) {
	cmd.Annotations = map[string]string{aboutThisHost: enough}
}

// commandSources returns the sources of the configuration of a command other than run. argument is a file with a policy that the
// command was given, "" for none. It also says how to connect, unless a group is named: that is one below the root of a host.
func commandSources(cmd *cobra.Command, argument string) (config.Sources, error) {
	p := places(cmd)
	if by, err := chosen(cmd, os.Getenv); err == nil && by.name == "" {
		p.Argument = argument
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
	return fmt.Errorf("%w; %s: to use others, add --zk, --config or --context", err, where)
}

// accessError adds to the error of a file with credentials or certificates what a user can do who may not read it.
func accessError(err error, from config.From) error {
	if !errors.Is(err, fs.ErrPermission) || from.File != hostFile {
		return err
	}
	return fmt.Errorf("%w; use sudo, or a context with credentials of your own (see 'zkelectd context --help')", err)
}

func contextCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use: "context", Short: "List, choose and show the connections that commands can use",
		Long: `A context is a named connection to ZooKeeper, for people and scripts on any host. The
contexts are in ~/.config/zkelectd/config.yaml (or $XDG_CONFIG_HOME/zkelectd/config.yaml):

  current: prod
  contexts:
    prod:
      servers: ["zk1:2281", "zk2:2281", "zk3:2281"]
      root: /zkelectd
      auth: {file: ~/.config/zkelectd/prod.auth}
      tls: {enabled: true, ca: /etc/ssl/zk.pem}
    test:
      servers: ["127.0.0.1:2181"]

A context has the settings of the section zookeeper. Files that it names begin with / or
~/; a file with passwords or a key must be private (mode 0600). Nobody else may be able
to change the file with the contexts.

A command takes its connection from the first of these:

  --context or --config
  the file that 'policy diff' and 'policy apply' were given, if it has a section zookeeper
  $ZKELECTD_CONFIG, the path of a configuration file
  $ZKELECTD_CONTEXT, the name of a context
  the current context
  /etc/zkelectd.yaml, the configuration of this host's daemon
  the defaults

Single settings from flags (--root) and from the environment (ZKELECTD_ZOOKEEPER_ROOT)
replace those. With --context, the ZKELECTD_ZOOKEEPER_ variables are not used, and a
warning names them. If a flag or the environment names the servers, neither the current
context nor /etc/zkelectd.yaml is read.

Credentials (zookeeper.auth, zookeeper.tls) go only to the servers that the same source
names. So --zk can select servers of the context or the file in use, but not add others;
and the environment cannot add credentials to a context, or to the file of --config.`,
	}, contextListCommand(), contextUseCommand(), contextShowCommand())
}

// listedContext is one context in the output of 'context list'.
type listedContext struct {
	Context string   `json:"context"`
	Current bool     `json:"current"`
	Servers []string `json:"servers"`
	Root    string   `json:"root"`
	Auth    string   `json:"auth_file,omitempty"`
	TLS     bool     `json:"tls"`
}

func contextListCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts, and which one is the current one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			all, err := places(cmd).Contexts()
			if err != nil {
				return err
			}
			return listContexts(cmd.OutOrStdout(), all, output)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func listContexts(w io.Writer, all config.Contexts, output string) error {
	list := []listedContext{}
	for _, c := range all.All() {
		cfg, err := c.Config()
		if err != nil {
			return err
		}
		z := cfg.ZooKeeper
		list = append(list, listedContext{Context: c.Name, Current: c.Name == all.Current, Servers: z.Servers, Root: z.Root, Auth: z.Auth.File, TLS: z.TLS.Enabled})
	}
	if output == "json" {
		return printJSON(w, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintf(w, "there are no contexts in %s; 'zkelectd context --help' shows how to write one\n", printable(all.File))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONTEXT\tCURRENT\tSERVERS\tROOT\tAUTH FILE\tTLS")
	for _, c := range list {
		current, tls, auth := "", "no", "-"
		if c.Current {
			current = "*"
		}
		if c.TLS {
			tls = "yes"
		}
		if c.Auth != "" {
			auth = c.Auth
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Context, current, printable(strings.Join(c.Servers, ",")), printable(c.Root), printable(auth), tls)
	}
	return t.Flush()
}

func contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use CONTEXT", Short: "Make a context the current one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := places(cmd).Contexts()
			if err != nil {
				return err
			}
			if err := all.Use(args[0]); err != nil {
				return err
			}
			c, err := all.Get(args[0])
			if err != nil {
				return err
			}
			cfg, err := c.Config()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "commands use the context %s now: %s, root %s\n", c.Name, printable(strings.Join(cfg.ZooKeeper.Servers, ",")), printable(cfg.ZooKeeper.Root))
			return err
		},
	}
}

// connectionSetting is one setting in the output of 'context show'.
type connectionSetting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// shownConnection is the output of 'context show'.
type shownConnection struct {
	Context  string              `json:"context,omitempty"`
	File     string              `json:"file,omitempty"`
	Settings []connectionSetting `json:"settings"`
	// Error is why the files with the credentials or certificates cannot be used; empty if they can.
	Error string `json:"error,omitempty"`
}

func contextShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show [CONTEXT]", Short: "Show the connection that commands use here, and where each setting comes from", Args: cobra.MaximumNArgs(1),
		Long: `Show prints the settings of the connection that a command with these flags would use,
each with its source, without connecting. With CONTEXT it shows that context.`,
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output); err != nil {
			return err
		}
		if len(args) > 0 {
			if err := cmd.Flags().Set("context", args[0]); err != nil {
				return err
			}
		}
		h, err := loadHost(cmd, "")
		if err != nil {
			return err
		}
		return newShownConnection(h).print(cmd.OutOrStdout(), output)
	}
	return cmd
}

func newShownConnection(h config.Host) shownConnection {
	s := shownConnection{File: h.From.File}
	if c := h.From.Context; c != nil {
		s.Context, s.File = c.Name, c.File
	}
	for _, key := range config.ConnectionKeys() {
		source := h.From.Source(key)
		if source == "" {
			source = "default"
		}
		s.Settings = append(s.Settings, connectionSetting{Key: key, Value: h.Config.Text(key), Source: source})
	}
	if err := operator.Access(h.Config, os.Getenv).Check(); err != nil {
		s.Error = err.Error()
	}
	return s
}

func (s shownConnection) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, s)
	}
	switch {
	case s.Context != "":
		fmt.Fprintf(w, "Context  %s in %s\n", s.Context, printable(s.File))
	case s.File != "":
		fmt.Fprintf(w, "File     %s\n", printable(s.File))
	default:
		fmt.Fprintln(w, "neither a context nor a configuration file is used")
	}
	if s.Error != "" {
		fmt.Fprintf(w, "Problem  %s\n", printable(s.Error))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SETTING\tVALUE\tSOURCE")
	for _, one := range s.Settings {
		fmt.Fprintf(t, "%s\t%s\t%s\n", one.Key, printable(one.Value), printable(one.Source))
	}
	return t.Flush()
}
