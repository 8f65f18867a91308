// Command compose runs deploy/docker-compose.yml with real containers: it starts the stack, disconnects a site and
// reconnects it, stops a leader, and removes the stack. The leader-only children print the term in which they work; the
// command fails if two of a group ever work at the same time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	compose := flag.String("compose", "docker-compose", "the command to run: docker compose or docker-compose")
	dir := flag.String("dir", "..", "the directory of docker-compose.yml")
	limit := flag.Duration("limit", 7*time.Minute, "give up after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %s", *limit))
	defer cancel()
	t := &tour{stack: newStack(strings.Fields(*compose), *dir)}
	err := t.run(ctx)
	if err != nil {
		t.printState()
	}
	if err := errors.Join(err, t.remove()); err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
	fmt.Println("removed, and nothing is left")
}
