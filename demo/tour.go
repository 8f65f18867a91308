package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// stepLimit bounds each wait of the tour.
const stepLimit = 40 * time.Second

// tour runs the steps of the demo. Every step waits for what it announces, and fails if that does not happen.
func (f *fleet) tour(ctx context.Context) error {
	for i, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"first election", f.firstElection},
		{"planned move to dc2: edit the policy in one file, reload one daemon", f.plannedMove},
		{"the leader's zkelectd is killed with -9", f.crash},
		{"a candidate that stalls is excluded by the watchdog", f.stall},
		{"return to the best daemon, once its exclusion is over", f.comeBack},
		{"twelve groups, and a resource with four slots, on the four daemons: one host is drained, and returns",
			f.manyGroups},
	} {
		f.say("\n%d. %s", i+1, step.title)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, n := range nodes {
				f.say("--- end of %s's log:\n%s", n.id, f.logs(n))
			}
			return fmt.Errorf("step %d (%s) failed: %w", i+1, step.title, err)
		}
	}
	return nil
}

// until waits for a view that ok accepts, and returns how long that took.
func (f *fleet) until(ctx context.Context, what string, ok func(status.Group) bool) (time.Duration, error) {
	began := time.Now()
	err := poll(ctx, func(ctx context.Context) (err error) {
		if f.view, err = f.read(ctx, cluster.NameOf(root), f.paths); err == nil && !ok(f.view) {
			err = errors.New("not yet")
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s did not happen: %w; the group is now:\n%s", what, err, f.view.Table())
	}
	return time.Since(began), nil
}

// poll calls f until it succeeds, and returns its last error if a step of the tour may not take longer.
func poll(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// read reads a group.
func (f *fleet) read(ctx context.Context, name string, paths cluster.Paths) (status.Group, error) {
	s, err := store.ReadAll(ctx, f.session, paths, false)
	return status.Of(name, paths.Root, s), err
}

func (f *fleet) leads(id string) func(status.Group) bool {
	return func(g status.Group) bool {
		return g.State == string(cluster.CurrentReady) && g.Leader == id && g.Next == ""
	}
}

// served checks the leader's child, and shows its answer.
func (f *fleet) served(ctx context.Context, id string) error {
	body, err := ask(ctx, f.dir, id, f.view.Term)
	if err == nil {
		f.say("   its child answers: %s", body)
	}
	return err
}

// ask checks that the leader's child answers with its node and term: the work is the proof, not the record in
// ZooKeeper.
func ask(ctx context.Context, dir, id string, term int64) (string, error) {
	addr, err := os.ReadFile(filepath.Join(dir, id+".addr"))
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(addr), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("the child of %s does not answer: %w", id, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return "", err
	}
	var who answer
	if err := json.Unmarshal(body, &who); err != nil || who.Node != id || who.Term != fmt.Sprint(term) {
		return "", fmt.Errorf("the child of %s answers %s, want term %d", id, body, term)
	}
	return strings.TrimSpace(string(body)), nil
}

func (f *fleet) firstElection(ctx context.Context) error {
	began := time.Now()
	// n4 starts first and becomes the elector, which shows that the elector and the leader are separate roles.
	for _, i := range []int{3, 0, 1, 2} {
		if err := f.start(nodes[i], f.configure); err != nil {
			return err
		}
		if i != 3 {
			continue
		}
		if _, err := f.until(ctx, "the registration of n4",
			func(g status.Group) bool { return len(g.Members) == 1 }); err != nil {
			return err
		}
	}
	if _, err := f.until(ctx, "the election of n1", func(g status.Group) bool {
		return len(g.Members) == 4 && f.leads("n1")(g)
	}); err != nil {
		return err
	}
	f.say("   four daemons on two sites run, and the best one leads, after %s", ms(time.Since(began)))
	f.say("   for the tour, policy.failback is immediate: by default leadership stays where it is until the leader " +
		"fails or is drained")
	f.say("   %s is the elector (the oldest member), %s is the leader (the best by policy)\n", f.view.Elector,
		f.view.Leader)
	f.say("%s", indent(f.view.Table()))
	return f.served(ctx, "n1")
}

func (f *fleet) plannedMove(ctx context.Context) error {
	f.sites["dc2"] = 300
	if err := f.configure(nodes[1]); err != nil {
		return err
	}
	syscall.Kill(f.daemons["n2"].pid(), syscall.SIGHUP)
	took, err := f.until(ctx, "the move to n3", f.leads("n3"))
	if err != nil {
		return err
	}
	f.say("   from SIGHUP to READY on %s: %s (%s: %s)", f.view.Leader, ms(took), f.view.Cause, f.view.Reason)
	return f.served(ctx, "n3")
}

func (f *fleet) crash(ctx context.Context) error {
	syscall.Kill(f.daemons["n3"].pid(), syscall.SIGKILL)
	took, err := f.until(ctx, "the failover to n4", f.leads("n4"))
	if err != nil {
		return err
	}
	<-f.daemons["n3"].done
	if err := f.served(ctx, "n3"); err == nil {
		return fmt.Errorf("the child of n3 still answers although zkelectd was killed")
	}
	f.say("   from kill -9 to READY on %s: %s, without waiting for the session timeout of 4s (%s)", f.view.Leader,
		ms(took), f.view.Reason)
	return f.served(ctx, "n4")
}

func (f *fleet) stall(ctx context.Context) error {
	if err := os.WriteFile(f.stallFile("n3"), nil, 0o600); err != nil {
		return err
	}
	if err := f.start(nodes[2], f.configure); err != nil {
		return err
	}
	moved, err := f.until(ctx, "the election of n3", func(g status.Group) bool { return g.Leader == "n3" })
	if err != nil {
		return err
	}
	f.say("   n3 is back and elected after %s, but its child never gets ready", ms(moved))
	took, err := f.until(ctx, "the return to n4", func(g status.Group) bool {
		return f.leads("n4")(g) && len(g.Exclusions) > 0
	})
	if err != nil {
		return err
	}
	x := f.view.Exclusions[0]
	f.say("   n4 leads again after %s; %s is excluded for %s: %s", ms(took), x.Node, x.For, x.Reason)
	return f.served(ctx, "n4")
}

func (f *fleet) comeBack(ctx context.Context) error {
	if err := os.Remove(f.stallFile("n3")); err != nil {
		return err
	}
	took, err := f.until(ctx, "the return to n3", f.leads("n3"))
	if err != nil {
		return err
	}
	f.say("   n3 leads again after %s (%s)\n", ms(took), f.view.Reason)
	f.say("%s", indent(f.view.Table()))
	return f.served(ctx, "n3")
}

func (f *fleet) stallFile(id string) string { return filepath.Join(f.dir, id+".stall") }

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }

func indent(s string) string { return "   " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n   ") }
