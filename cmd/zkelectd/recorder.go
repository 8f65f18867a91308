package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/procinfo"
	"zkelectd/internal/recorder"
	"zkelectd/internal/replay"
)

// startRecorder starts the flight recorder of a daemon; it returns nil if nothing is to be recorded.
func startRecorder(cfg config.Config, log *slog.Logger) *recorder.Recorder {
	dir := cfg.RecorderDir(os.Getenv)
	if dir == "" {
		return nil
	}
	boot, err := procinfo.BootID()
	if err != nil {
		log.Warn("the flight recorder does not know the boot ID: recordings of this host's daemons cannot be compared by time", "err", err)
	}
	return recorder.New(recorder.Options{
		Dir: dir, Size: int64(cfg.Recorder.Size) << 20, Node: cfg.Node.ID, Version: version(), Boot: boot, Log: log.With("process", "daemon"),
	})
}

// recordings are the files that a command was given: the recordings of each node, by name and place, and the other files.
type recordings struct {
	nodes  [][]string
	others []string
}

// findRecordings sorts files and directories. The two files of a node belong together.
func findRecordings(paths []string) (recordings, error) {
	var found recordings
	index := make(map[string]int)
	add := func(path string) error {
		is, err := recorder.IsRecording(path)
		switch {
		case err != nil:
			return err
		case !is:
			found.others = append(found.others, path)
			return nil
		}
		node := recorder.NodeOf(path)
		i, known := index[node]
		if !known {
			i = len(found.nodes)
			index[node] = i
			found.nodes = append(found.nodes, nil)
		}
		if !slices.Contains(found.nodes[i], path) {
			found.nodes[i] = append(found.nodes[i], path)
		}
		return nil
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return recordings{}, err
		}
		files := []string{path}
		if info.IsDir() {
			if files, err = recorder.Files(path); err == nil && len(files) == 0 {
				err = fmt.Errorf("the directory %s has no recording", path)
			}
			if err != nil {
				return recordings{}, err
			}
		}
		for _, file := range files {
			if err := add(file); err != nil {
				return recordings{}, err
			}
		}
	}
	return found, nil
}

func recorderCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "recorder", Short: "Show what daemons have recorded"}, recorderShowCommand())
}

func recorderShowCommand() *cobra.Command {
	var output string
	t := replay.Timeline{}
	cmd := &cobra.Command{
		Use: "show FILE...", Short: "Show recordings line by line", Args: cobra.MinimumNArgs(1),
		Long: `Show prints what the flight recorder of a daemon has kept: what the daemon read
of the group, what happened to it, what it decided and did. FILE is a recording
or a directory with recordings, such as /var/lib/zkelectd/recorder. The daemon
may be running.

Renewals, timers, and decisions that change nothing are shown with --all only.`,
		Example: `  zkelectd recorder show /var/lib/zkelectd/recorder
  zkelectd recorder show --all -o json n1.a.zkrec n1.b.zkrec`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			found, err := findRecordings(args)
			if err != nil {
				return err
			}
			if len(found.others) > 0 {
				return fmt.Errorf("%s is not a recording of this version of zkelectd", found.others[0])
			}
			var failed error
			t.Show = func(l replay.Line) {
				if failed == nil {
					failed = printLine(cmd.OutOrStdout(), l, output)
				}
			}
			for _, files := range found.nodes {
				if err := recorder.Read(files, &t); err != nil {
					return err
				}
			}
			return failed
		},
	}
	cmd.Flags().BoolVar(&t.All, "all", false, "show all records")
	cmd.Flags().StringVarP(&t.Group, "group", "g", "", "show the records of this group only, as in billing or ingest/3")
	outputFlag(cmd, &output)
	return cmd
}

func printLine(w io.Writer, l replay.Line, output string) error {
	if output == "json" {
		return printJSONLine(w, l)
	}
	_, err := fmt.Fprintln(w, l.Time.Format("2006-01-02T15:04:05.000Z"), printableText(strings.Join([]string{l.Node, l.Group, l.What + ":", l.Text}, " ")))
	return err
}

func verifyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "verify FILE...", Short: "Check the recordings and ledgers of all hosts", Args: cobra.MinimumNArgs(1),
		Long: `Verify checks what the flight recorders of a group's hosts have kept: that no two
works of a group ran at once, that work ran under a lease only and had ended
before its release, that only elected daemons held leadership, that terms grew,
and that the recorded inputs lead to the same decisions with this binary.

FILE is a recording, a directory with recordings, or a ledger, in which the
leader-only work itself has noted when it ran: lines of "boottime-ns node term
event [run]", of one group and one machine.

Times compare only on one machine, between boots. Works on different machines
are compared by their terms and by what ZooKeeper stored. What is missing in
the recordings is listed.

The exit status is 0 if nothing is wrong, 1 if a check is violated, and 2 if a
file cannot be read.`,
		Example: `  zkelectd verify /var/lib/zkelectd/recorder
  zkelectd verify n1/ n2/ n3/ ledger.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			report, err := verify(args)
			if err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = printReport(cmd.OutOrStdout(), report)
			}
			if err == nil && !report.OK() {
				return exitError{status: statusNo}
			}
			return err
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func verify(paths []string) (replay.Report, error) {
	found, err := findRecordings(paths)
	if err != nil {
		return replay.Report{}, err
	}
	v := replay.Verifier{Version: version()}
	for _, path := range found.others {
		l, err := readLedger(path)
		if err != nil {
			return replay.Report{}, err
		}
		v.AddLedger(l)
	}
	for _, files := range found.nodes {
		if err := v.AddRecording(files); err != nil {
			return replay.Report{}, err
		}
	}
	return v.Report(), nil
}

func readLedger(path string) (replay.Ledger, error) {
	file, err := os.Open(path)
	if err != nil {
		return replay.Ledger{}, err
	}
	defer file.Close()
	return replay.ReadLedger(path, file)
}

func printReport(w io.Writer, r replay.Report) error {
	var text strings.Builder
	list := func(label string, all []string) {
		for _, line := range all {
			fmt.Fprintf(&text, "  %s%s\n", label, strings.ReplaceAll(line, "\n", "\n  "))
		}
	}
	fmt.Fprintln(&text, "recorded:")
	list("", r.Recorded)
	for _, c := range r.Checks {
		result := "ok      "
		if len(c.Violations) > 0 {
			result = "VIOLATED"
		}
		fmt.Fprintf(&text, "%s  %s (%s)\n", result, c.Name, c.Checked)
		list("", c.Violations)
		list("note: ", c.Notes)
	}
	if len(r.Gaps) > 0 {
		fmt.Fprintln(&text, "missing in the recordings:")
		list("", r.Gaps)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, printableText(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}
