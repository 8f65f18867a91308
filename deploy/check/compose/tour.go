package main

import (
	"context"
	"fmt"
	"time"
)

// failback is policy.failback in docker-compose.yml.
const failback = 10 * time.Second

// tour is the sequence of tests on a stack. Each step starts with the leader of the one before.
type tour struct {
	*stack
	lease  time.Duration
	leader span // the work of the current leader
}

// run runs the steps, up to the first error.
func (t *tour) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.start, t.checkContainers, t.checkDocumentation, t.disconnectSite, t.reconnectSite, t.stopLeader, t.checkEnd,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the stack and waits for n1, the best node, to lead.
func (t *tour) start(ctx context.Context) error {
	begun := time.Now()
	if err := t.up(ctx); err != nil {
		return err
	}
	fmt.Printf("up, after                                        %8s\n", since(begun))
	first, err := t.waitForLeader(ctx, "", 0)
	if err != nil {
		return err
	}
	fmt.Printf("the first leader works, from the beginning       %8s\n", first.from.Sub(begun).Round(time.Millisecond))
	// A node that registered earlier may have been elected before n1 was there.
	t.leader, err = t.waitForLeader(ctx, "n1", 0)
	return err
}

func (t *tour) checkContainers(ctx context.Context) (err error) {
	if err := t.checkHardening(ctx); err != nil {
		return err
	}
	fmt.Println("every container has the restrictions of the file")
	if t.lease, err = t.checkMonitoring(ctx); err != nil {
		return err
	}
	fmt.Printf("Prometheus has the alerts, sees one leader, and a lease of %s\n", t.lease)
	return nil
}

func (t *tour) checkDocumentation(ctx context.Context) error {
	for _, section := range []string{"### Look", "## Around an application"} {
		if err := t.runDocumented(ctx, section); err != nil {
			return err
		}
	}
	fmt.Println("the commands of docs/containers.md work: looking, and a sidecar")
	return nil
}

// disconnectSite disconnects the leader's site: its work ends with the lease, and n3 takes over.
func (t *tour) disconnectSite(ctx context.Context) error {
	before := time.Now()
	if err := t.site(ctx, "cut", "dc1"); err != nil {
		return err
	}
	after := time.Now()
	next, err := t.waitForLeader(ctx, "n3", t.leader.term+1)
	if err != nil {
		return err
	}
	old, err := t.work(ctx, t.leader.term)
	if err != nil {
		return err
	}
	if old.to.After(after.Add(t.lease)) {
		return fmt.Errorf("n1 worked until %s after its site was disconnected, with a lease of %s",
			old.to.Sub(after), t.lease)
	}
	fmt.Printf("dc1 disconnected: n1 stops working, after        %8s\n", old.to.Sub(before).Round(time.Millisecond))
	fmt.Printf("                  n3 works, after                %8s\n", next.from.Sub(before).Round(time.Millisecond))
	t.leader = next
	return t.probeFails(ctx, "n1", "/leader")
}

// reconnectSite reconnects the site: n1 is a standby again, and leads again after the failback delay.
func (t *tour) reconnectSite(ctx context.Context) error {
	before := time.Now()
	if err := t.site(ctx, "heal", "dc1"); err != nil {
		return err
	}
	after := time.Now()
	if err := t.waitForProbe(ctx, "n1", "/replica"); err != nil {
		return err
	}
	fmt.Printf("dc1 reconnected:  n1 is a standby again, after   %8s\n", since(after))
	next, err := t.waitForLeader(ctx, "n1", t.leader.term+1)
	if err != nil {
		return err
	}
	if waited := next.from.Sub(before); waited < failback {
		return fmt.Errorf("n1 works again %s after its site was reconnected, before the delay of %s", waited, failback)
	}
	fmt.Printf("                  n1 works again, after          %8s\n", next.from.Sub(after).Round(time.Millisecond))
	t.leader = next
	return nil
}

// stopLeader stops n1: n2 takes over.
func (t *tour) stopLeader(ctx context.Context) error {
	began := time.Now()
	status, err := t.stop(ctx, "n1")
	if err != nil {
		return err
	}
	if status != 0 {
		return fmt.Errorf("n1 was stopped, and ended with status %d", status)
	}
	next, err := t.waitForLeader(ctx, "n2", t.leader.term+1)
	if err != nil {
		return err
	}
	old, err := t.work(ctx, t.leader.term)
	if err != nil {
		return err
	}
	fmt.Printf("n1 stopped:       n2 works, after                %8s\n", next.from.Sub(began).Round(time.Millisecond))
	fmt.Printf("                  no node worked for             %8s\n", next.from.Sub(old.to).Round(time.Millisecond))
	t.leader = next
	return nil
}

func (t *tour) checkEnd(ctx context.Context) error {
	if err := t.waitForHealth(ctx); err != nil {
		return err
	}
	fmt.Println("every container is healthy")
	lines, err := t.workLines(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d lines of work in %d terms, never two at the same time\n", len(lines), len(terms(lines)))
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
