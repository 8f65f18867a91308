//go:build gen

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"zkelectd/internal/config"
)

// buildCommands returns the commands for building packages. They are not in the product, where they would cost every
// daemon and guard memory.
func buildCommands() []*cobra.Command {
	cmd := &cobra.Command{Use: "gen", Hidden: true, Short: "Write files generated from the commands"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write the manual pages, dated $SOURCE_DATE_EPOCH", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
		},
	)
	return []*cobra.Command{cmd}
}

func writeManual(root *cobra.Command, dir string) error {
	date := time.Now()
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(epoch, 0)
	}
	root.DisableAutoGenTag = true
	forgetHost(root)
	describeConnection(root)
	root.Long += "\n\n" + connectionTopic().Long
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "zkelectd", Manual: "zkelectd"},
		dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, page := range pages {
		err = errors.Join(err, seeAlso(page, `\fBzkelectd.yaml(5)\fP`))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "zkelectd.yaml.5"), []byte(config.ManualPage(date)), 0o644))
}

// describeConnection has the pages of commands name the flags for the connection, which the page of zkelectd describes.
func describeConnection(cmd *cobra.Command) {
	if flags := connectionFlags(cmd); len(flags) > 0 {
		for _, f := range flags {
			f.Hidden = true
		}
		cmd.Long += "\n\nThe flags " + listed(flags) + " are described in zkelectd(1)."
	}
	for _, sub := range cmd.Commands() {
		describeConnection(sub)
	}
}

// seeAlso adds another page to the section SEE ALSO, which is the last one of a page.
func seeAlso(page, other string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, list, found := strings.Cut(string(text), ".SH SEE ALSO\n")
	if !found {
		return fmt.Errorf("%s has no section SEE ALSO", page)
	}
	return os.WriteFile(page, []byte(before+".SH SEE ALSO\n"+strings.TrimSpace(list)+", "+other+"\n"), 0o644)
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
