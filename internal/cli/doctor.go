package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/operator/doctor"
)

func doctorCommand(c *command) {
	var support bool
	var file string
	c.Use = "doctor"
	c.Short = "Find out what is wrong on this host, in ZooKeeper and in the host's groups"
	c.Long = `Doctor checks the configuration, each ZooKeeper server, a write by the quorum, the
session timeout, clocks, permissions, the daemon of this host and what it may use, and
each group of the configuration. It prints a line for each check: ok, warn or fail, what
was seen, and what to do. What it could not look at is a warning.

Run it on the host, with sudo if only the daemon may read its configuration. It takes less
than 10 s. It changes nothing, apart from a znode that it creates and removes again.

Before you restore ZooKeeper's data from a backup, stop the daemons: see "Restore
ZooKeeper's data" in docs/operations.md.

The exit status is that of a monitoring plugin: 0 if all is ok, 1 for a warning, 2 if
something fails.

With --support it writes what a bug report needs into a .tar.gz: the version, the
configuration, its own output, and for each group of this host the status, history, policy,
requests and ACLs. It adds the end of the daemon's log in the journal, the limits and control
groups of its processes, and its metrics. README.txt lists the files, and what could not be
collected. If that is nothing about a daemon or a group, the exit status is 2.

Passwords, tokens, keys, the values of child.env and the arguments of programs are left
out. Names of nodes and hosts, reasons that people gave, and log messages remain: look
through the files before you send them. Only you can read the file.`
	concernsHost(c.Command, "zookeeper.servers")
	output := c.outputFlag()
	c.Flags().BoolVar(&support, "support", false, "collect what a bug report needs in one file, without secrets")
	c.Flags().StringVar(&file, "file", "", "with --support: the file to write, which must not exist (default: zkelectd-support-NODE-TIME.tar.gz)")
	c.MarkFlagsMutuallyExclusive("support", "output")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := commandSources(cmd)
		if err != nil {
			return err
		}
		if support {
			return writeSupport(cmd.Context(), cmd.OutOrStdout(), src, file)
		}
		if file != "" {
			return errors.New("--file is for --support")
		}
		report := examine(cmd.Context(), src)
		if err := report.print(cmd.OutOrStdout(), *output); err != nil {
			return err
		}
		return report.status()
	}
}

// doctorReport is the output of doctor.
type doctorReport struct {
	// Result is the worst result of the checks.
	Result doctor.Result    `json:"result"`
	Checks []doctor.Finding `json:"checks"`
}

// examine gathers the facts about this host, and returns the findings.
func examine(ctx context.Context, src config.Sources) doctorReport {
	return diagnosed(newCheckup(src).run(ctx))
}

func diagnosed(facts doctor.Facts) doctorReport {
	found := doctor.Diagnose(facts)
	return doctorReport{doctor.Worst(found), found}
}

func (r doctorReport) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, r)
	}
	t := newTable(w)
	for _, f := range r.Checks {
		t.row(f.Result, f.What(), f.String())
	}
	return t.Flush()
}

// status returns an error with the exit status of a monitoring plugin.
func (r doctorReport) status() error {
	switch r.Result {
	case doctor.OK:
		return nil
	case doctor.Warn:
		return exitError{checkWarning, nil}
	}
	return exitError{checkCritical, nil}
}

// Limits of the parts of doctor, which must end within 10 s even if nothing answers.
const (
	doctorTimeout = 9 * time.Second
	serverTimeout = 3 * time.Second // for each server, and for the session
	localTimeout  = 2 * time.Second // for the file systems of this host, and for the daemon's endpoint
)

// errHangs is the error for a file system of this host that does not answer.
var errHangs = errors.New("a file system of this host does not answer")

// local returns what f returns, or an error if that takes long. f goes on then, until the file system answers.
func local[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		value, err := f()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, errHangs
	}
}
