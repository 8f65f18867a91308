//go:build gen

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// buildCommands returns the commands for building packages. They are not in the product, where they would cost every daemon
// and guard memory.
func buildCommands() []*cobra.Command {
	cmd := &cobra.Command{Use: "gen", Hidden: true, Short: "Write files generated from the commands"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write the manual pages, dated $SOURCE_DATE_EPOCH", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
		},
		&cobra.Command{
			Use: "completions DIR", Short: "Write the completions for bash, zsh and fish", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return writeCompletions(cmd.Root(), args[0]) },
		},
	)
	return []*cobra.Command{cmd}
}

func writeManual(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true
	forgetHost(root)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "zkelectd", Manual: "zkelectd"}, dir)
}

// forgetHost removes the host name of this machine from the defaults: the manual is for all hosts.
func forgetHost(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	if f := cmd.Flags().Lookup("id"); f != nil {
		before, _, _ := strings.Cut(f.Usage, " (default")
		f.Usage, f.DefValue = before+" (default: the host name)", ""
	}
	for _, sub := range cmd.Commands() {
		forgetHost(sub)
	}
}

func writeCompletions(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{
		"zkelectd.bash": func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"_zkelectd":     root.GenZshCompletionFile,
		"zkelectd.fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
	} {
		if err := write(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("cannot write the completion %s: %w", name, err)
		}
	}
	return nil
}
