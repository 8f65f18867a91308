// Command bench measures zkelectd on this machine, each figure against something measured in the same run: machines are
// noisy, ratios less so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 50, "planned handovers to measure; a tenth as many crashes")
	binary := flag.String("binary", "bin/zkelectd", "the zkelectd that runs as processes of its own")
	only := flag.String("only", "handover,crash,packets,idle", "what to measure, separated by commas")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: bench [flags]\nPrints a table; a goal that is missed is marked and is no failure.")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t := &table{}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"handover", func() error { return handover(ctx, t, *rounds) }},
		{"crash", func() error { return crash(ctx, t, *binary, max(3, *rounds/10)) }},
		{"packets", func() error { return packets(ctx, t) }},
		{"idle", func() error { return idle(ctx, t, *binary) }},
	} {
		if !slices.Contains(strings.Split(*only, ","), part.name) {
			continue
		}
		if err := part.run(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", part.name, err)
			os.Exit(1)
		}
	}
	t.print(os.Stdout)
}

// quantile of a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
