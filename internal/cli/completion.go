package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// completionTimeout bounds how long a person waits for what is read from ZooKeeper.
const completionTimeout = time.Second

// complete returns the words that a person can go on with. It has no errors: without an answer it offers nothing.
type complete func(ctx context.Context, cmd *cobra.Command) []string

// completeFiles stands for the files of the shell.
var completeFiles complete

// argumentCompletions are the completions of the positional arguments, by the words of Use.
var argumentCompletions = map[string]complete{
	"NODE": nodeNames, "SITE": siteNames,
}

// fileArguments are the words of Use for files, and for the command line of a child.
var fileArguments = []string{"FILE", "SOCKET", "DIR", "command"}

// flagCompletions are the completions of the values of flags, by name.
var flagCompletions = map[string]complete{
	"config": completeFiles, "policy": completeFiles, "file": completeFiles, "http-token-file": completeFiles,
	"http-web-config": completeFiles,
	"session-file":    completeFiles, "group": groupNames, "to": nodeNames, "without": nodeNames, "cordon": nodeNames,
	"drain": nodeNames, "node": nodeNames, "id": nodeNames, "site": siteNames, "without-site": siteNames,
	"log-level":  values("debug", "info", "warn", "error"),
	"log-format": values("text", "json"),
}

// addCompletions gives every argument and flag of a command, and of those below it, its completion; what has none
// offers nothing, and in particular no files.
func addCompletions(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addCompletions(sub)
	}
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && (!cmd.HasSubCommands() || takesArguments(cmd)) {
		cmd.ValidArgsFunction = offer(argumentCompletion(cmd.Use))
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		from, known := flagCompletions[f.Name]
		if output, ok := f.Value.(outputValue); ok {
			from, known = values(output.words...), true
		}
		if !known {
			from = values()
		}
		if _, exists := cmd.GetFlagCompletionFunc(f.Name); !exists {
			if err := cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string,
				begun string) ([]string, cobra.ShellCompDirective) {
				return completed(cmd, from, begun)
			}); err != nil {
				panic(err) // the flag exists
			}
		}
	})
}

// argumentCompletion returns the completion of the positional argument that a usage line names.
func argumentCompletion(use string) complete {
	var all []complete
	for _, word := range strings.Fields(use)[1:] {
		word = strings.Trim(strings.TrimSuffix(word, "..."), "[].")
		if slices.Contains(fileArguments, word) {
			return completeFiles
		}
		if strings.HasPrefix(word, "--") && word != "--" {
			break // what follows is the value of a flag
		}
		if from, ok := argumentCompletions[word]; ok {
			all = append(all, from)
		}
	}
	return func(ctx context.Context, cmd *cobra.Command) (words []string) {
		for _, from := range all {
			words = append(words, from(ctx, cmd)...)
		}
		return words
	}
}

// offer returns the completion of the first positional argument. There is no second one, apart from files.
func offer(from complete) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && from != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completed(cmd, from, begun)
	}
}

// completed returns the words of a completion that begin with what a person has typed.
func completed(cmd *cobra.Command, from complete, begun string) ([]string, cobra.ShellCompDirective) {
	if from == nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	before := "" // the items of a list that are complete
	if i := strings.LastIndexByte(begun, ','); i >= 0 {
		before, begun = begun[:i+1], begun[i+1:]
	}
	var words []string
	for _, word := range slices.Sorted(slices.Values(from(ctx, cmd))) {
		if strings.HasPrefix(word, begun) && word == printable(word) {
			words = append(words, before+word)
		}
	}
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// values returns a completion with fixed words.
func values(words ...string) complete {
	return func(context.Context, *cobra.Command) []string { return words }
}

// groupNames returns the groups, and their slots, as -g takes them.
func groupNames(ctx context.Context, cmd *cobra.Command) (names []string) {
	h, s := reach(ctx, cmd)
	if h.Dir != "" {
		names = namesOf(h)
	}
	if s == nil {
		return names // better than none
	}
	defer operator.Disconnect(ctx, s)
	groups, _, _ := store.Groups(ctx, s, h.Config.ZooKeeper.Root)
	for _, g := range groups {
		names = append(names, g.Name)
		if g.Kind == cluster.KindSlots {
			record, _ := store.ReadSlots(ctx, s, cluster.Paths{Root: g.Root}, false)
			for i := range record.Record.Count {
				names = append(names, fmt.Sprintf("%s/%d", g.Name, i))
			}
		}
	}
	return names
}

func nodeNames(ctx context.Context, cmd *cobra.Command) []string {
	nodes, _ := nodesAndSites(membership(ctx, cmd)...)
	return nodes
}

func siteNames(ctx context.Context, cmd *cobra.Command) []string {
	_, sites := nodesAndSites(membership(ctx, cmd)...)
	return sites
}

// membership returns the group that the command line names, or all groups.
func membership(ctx context.Context, cmd *cobra.Command) []cluster.Snapshot {
	h, s := reach(ctx, cmd)
	if s == nil {
		return nil
	}
	defer operator.Disconnect(ctx, s)
	by, err := chosen(cmd, os.Getenv)
	if err != nil {
		return nil
	}
	all, err := find(ctx, s, h, by)
	if err != nil {
		return nil
	}
	found := make([]cluster.Snapshot, len(all.groups))
	all.each(ctx, func(ctx context.Context, i int, g group) {
		found[i], _ = g.read(ctx) // better some than none
	})
	return found
}

// reach returns the configuration of the command line, and a session; nil if there is none.
func reach(ctx context.Context, cmd *cobra.Command) (config.Host, *zk.Session) {
	src, err := commandSources(cmd)
	if err != nil {
		return config.Host{}, nil
	}
	h, _, err := config.LoadCommand(src)
	if err != nil {
		return config.Host{}, nil
	}
	s, err := connect(ctx, h.Config, h.From)
	if err != nil {
		return h, nil
	}
	return h, s
}
