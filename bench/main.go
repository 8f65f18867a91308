// Command bench measures zkelectd on this machine. Each figure is compared with another one from the same run, since
// ratios vary less than absolute figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/guard"
)

var (
	verbose = flag.Bool("v", false, "show the errors that the daemons log; the killed ones cause many")
	logs    = flag.String("logs", "", "a directory for the logs of the daemons, one file for each")
)

func main() {
	if server := os.Getenv(plainLockServer); server != "" {
		if err := runPlainLock(server, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: plain lock:", err)
			os.Exit(1)
		}
		return
	}
	guard.MaybeRunKeeper()
	if os.Getenv(guarded) == "" {
		// Daemons in this process need a guard: this process starts one, whose daemon is this program again.
		os.Setenv(guarded, "yes")
		status, err := guard.Run(guard.Options{Path: "/proc/self/exe", Argv: os.Args, Log: slog.Default()})
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(status)
	}
	rounds := flag.Int("rounds", 50, "how many planned handovers and killed daemons to measure; of lost hosts a tenth")
	lost := flag.Int("losses", 20, "how many lost hosts of each kind to measure in losthost")
	binary := flag.String("binary", "bin/zkelectd", "the zkelectd to run")
	only := flag.String("only", "handover,daemon,failover,idle,groups", "what to measure, separated by commas")
	sizes := flag.String("sizes", "10,100,500,2000", "the sizes of the groups in scale; the first is what the others "+
		"are compared with")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: bench [flags]\nPrints a table. A missed goal is marked; the "+
			"exit status is 0 nevertheless.")
		flag.PrintDefaults()
	}
	flag.Parse()
	guardClient, err := guard.Connect(guard.SocketFD, slog.Default())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if of := os.Getenv(extrasOf); of != "" {
		if err := runExtras(ctx, guardClient, of); err != nil {
			fmt.Fprintln(os.Stderr, "bench: further members:", err)
			os.Exit(1)
		}
		return
	}
	t := &table{}
	for _, p := range parts(ctx, t, options{*binary, *rounds, *lost, *sizes}, guardClient) {
		if !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		if err := p.run(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.name, err)
			os.Exit(1)
		}
	}
	t.print(os.Stdout)
}

// options are the flags of all parts.
type options struct {
	binary string
	rounds int
	losses int
	sizes  string
}

// part is one of the things to measure.
type part struct {
	name string
	run  func() error
}

// parts returns all parts. They add their figures to t.
func parts(ctx context.Context, t *table, o options, guardClient *guard.Client) []part {
	return []part{
		{"handover", func() error { return handover(ctx, t, o.binary, o.rounds) }},
		{"daemon", func() error { return killedDaemon(ctx, t, o.binary, o.rounds) }},
		{"idle", func() error { return idle(ctx, t, o.binary) }},
		{"failover", func() error { return failover(ctx, t, o.binary, max(10, o.rounds/2)) }},
		{"losthost", func() error { return lostHosts(ctx, t, o.binary, o.losses) }},
		{"standby", func() error { return standbys(ctx, t, o.binary, 3) }}, // takes about five minutes
		{"groups", func() error { return groups(ctx, t, o.binary) }},
		// takes long, and 8 GB with 2,000 members
		{"scale", func() error { return scale(ctx, t, guardClient, o, max(5, o.rounds/5)) }},
		{"storm", func() error { return storm(ctx, t, guardClient) }},        // takes eight minutes
		{"idlegroups", func() error { return idleGroups(ctx, t, o.binary) }}, // a part of groups
	}
}

// guarded is set in the environment of the process that the guard starts.
const guarded = "BENCH_GUARDED"

// quantile returns a quantile of a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
