package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileFlags are the flags whose value is a file.
var fileFlags = []string{"config", "policy", "file", "http-token-file", "http-web-config", "session-file"}

// Nothing offers files that is not a file.
func TestCompletionOffersFilesForFilesOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	offersFiles := func(args ...string) bool {
		t.Helper()
		out, err := d.command(append([]string{"__complete"}, args...)...).Output()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		lines := strings.Fields(string(out))
		return len(lines) == 0 || lines[len(lines)-1] != ":4" // no file completion
	}
	nowhere := "127.0.0.1:" + closedPort(t)
	d.env = []string{"ZKELECTD_ZOOKEEPER_SERVERS=" + nowhere, "ZKELECTD_ZOOKEEPER_CONNECT_TIMEOUT=10ms"}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if cmd.Runnable() && !cmd.Hidden && cmd.Name() != "help" {
			isFile := slices.ContainsFunc([]string{"FILE", "SOCKET", "command"}, func(word string) bool { return strings.Contains(cmd.Use, word) })
			if offersFiles(append(path, "")...) != isFile {
				t.Errorf("%s: files: %v", cmd.Use, !isFile)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root())
	// One process for each flag of each command would take too long: the functions themselves are called.
	var flags func(cmd *cobra.Command)
	flags = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" || f.Name == "help" {
				return
			}
			if f.Name == "group" || flagCompletions[f.Name] != nil && !slices.Contains(fileFlags, f.Name) {
				return // tested below
			}
			offer, ok := cmd.GetFlagCompletionFunc(f.Name)
			if !ok {
				t.Errorf("%s --%s has no completion", cmd.CommandPath(), f.Name)
				return
			}
			if _, directive := offer(cmd, nil, ""); (directive == cobra.ShellCompDirectiveDefault) != slices.Contains(fileFlags, f.Name) {
				t.Errorf("%s --%s: directive %d", cmd.CommandPath(), f.Name, directive)
			}
		})
		for _, sub := range cmd.Commands() {
			flags(sub)
		}
	}
	flags(root())
}

// Completion offers what is there, quickly, and never an error.
func TestCompletion(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("n1", "n2")
	d := newDesk(t)
	d.write("etc.yaml", fmt.Sprintf("zookeeper: {servers: [%q], root: %s}\n", shared.Addr(), f.paths.Root))
	offers := func(want string, args ...string) {
		t.Helper()
		var out []byte
		f.eventually(fmt.Sprintf("%v offers %q", args, want), func() bool { // a loaded machine can take longer than a second
			var err error
			out, err = d.command(append([]string{"__complete"}, args...)...).Output()
			return err == nil && string(out) == strings.ReplaceAll(want, " ", "\n")
		}, func() string { return string(out) })
	}
	offers("dc1 n1 n2 :4 ", "drain", "")
	offers("n1 n2 :4 ", "move", "--to", "")
	offers("n1 n2 :4 ", "clear-strikes", "n")
	offers("dc1 :4 ", "move", "--site", "d")
	offers("n1,n1 n1,n2 :4 ", "whatif", "--without", "n1,")
	offers("json :4 ", "history", "-o", "j")
	offers("debug error info warn :4 ", "run", "--log-level", "")
	offers("root policy control history roster slots elected fence current :4 ", "repair", "")
	offers(":4 ", "drain", "n1", "")
	began := time.Now()
	offers(":4 ", "drain", "--zk", "127.0.0.1:"+closedPort(t), "")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("without a server: after %s", took)
	}
	d.write("etc.yaml", "zookeeper: [")
	offers(":4 ", "drain", "")
}
