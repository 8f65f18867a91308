// Command compose runs deploy/docker-compose.yml as it stands, with real containers: up, a site cut off, healed, a leader
// stopped, down. All the time the leader-only children say with which term they work: no two may ever do so at once.
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
	compose := flag.String("compose", "docker-compose", "the command to run, docker compose or docker-compose")
	dir := flag.String("dir", "..", "the folder of docker-compose.yml")
	limit := flag.Duration("limit", 5*time.Minute, "give up after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done after %s", *limit))
	defer cancel()
	s := newStack(strings.Fields(*compose), *dir)
	err := tour(ctx, s)
	if err != nil {
		s.tell()
	}
	if err := errors.Join(err, s.remove()); err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
	fmt.Println("down, and nothing is left of it")
}

// failback is election.failback.delay of the file.
const failback = 10 * time.Second

// tour is the story; the first thing that is not as it should be ends it.
func tour(ctx context.Context, s *stack) error {
	begun := time.Now()
	if err := s.up(ctx); err != nil {
		return err
	}
	fmt.Printf("up, after                                        %8s\n", since(begun))
	one, err := s.leads(ctx, "", 0)
	if err != nil {
		return err
	}
	fmt.Printf("the first leader works, from the beginning       %8s\n", one.from.Sub(begun).Round(time.Millisecond))
	// Who registered first may have been elected before the best of all was there.
	first, err := s.leads(ctx, "n1", 0)
	if err != nil {
		return err
	}
	if err := s.hardened(ctx); err != nil {
		return err
	}
	fmt.Println("every container has what the file limits it to")
	lease, err := s.monitored(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("Prometheus has the alerts, sees one leader, and a lease of %s\n", lease)

	for _, section := range []string{"### Look", "## Around an application"} {
		if err := s.documented(ctx, section); err != nil {
			return err
		}
	}
	fmt.Println("what docs/containers.md says works: looking, and a sidecar")

	cut := time.Now()
	if err := s.site(ctx, "cut", "dc1"); err != nil {
		return err
	}
	gone := time.Now()
	second, err := s.leads(ctx, "n3", first.term+1)
	if err != nil {
		return err
	}
	if first, err = s.work(ctx, first.term); err != nil {
		return err
	}
	if first.to.After(gone.Add(lease)) {
		return fmt.Errorf("n1 worked until %s after its site was cut off, on a lease of %s", first.to.Sub(gone), lease)
	}
	fmt.Printf("dc1 cut off: n1 works no more, after             %8s\n", first.to.Sub(cut).Round(time.Millisecond))
	fmt.Printf("             n3 works, after                     %8s\n", second.from.Sub(cut).Round(time.Millisecond))
	if err := s.no(ctx, "n1", "/leader"); err != nil {
		return err
	}

	healing := time.Now()
	if err := s.site(ctx, "heal", "dc1"); err != nil {
		return err
	}
	healed := time.Now()
	if err := s.yes(ctx, "n1", "/replica"); err != nil {
		return err
	}
	fmt.Printf("dc1 healed:  n1 is a standby again, after        %8s\n", since(healed))
	third, err := s.leads(ctx, "n1", second.term+1)
	if err != nil {
		return err
	}
	if waited := third.from.Sub(healing); waited < failback {
		return fmt.Errorf("n1 works again %s after its site began to be healed, before the delay of %s", waited, failback)
	}
	fmt.Printf("             n1 works again, after               %8s\n", third.from.Sub(healed).Round(time.Millisecond))

	begun = time.Now()
	status, err := s.stop(ctx, "n1")
	if err != nil {
		return err
	}
	if status != 0 {
		return fmt.Errorf("n1 was stopped, and ended with status %d", status)
	}
	fourth, err := s.leads(ctx, "n2", third.term+1)
	if err != nil {
		return err
	}
	if third, err = s.work(ctx, third.term); err != nil {
		return err
	}
	fmt.Printf("n1 stopped:  n2 works, after                     %8s\n", fourth.from.Sub(begun).Round(time.Millisecond))
	fmt.Printf("             and nobody worked in between for    %8s\n", fourth.from.Sub(third.to).Round(time.Millisecond))
	if err := s.healthy(ctx); err != nil {
		return err
	}
	fmt.Println("every container is healthy")
	lines, err := s.said(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d lines of work in %d terms, never two at once\n", len(lines), len(terms(lines)))
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
