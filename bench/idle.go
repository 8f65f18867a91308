package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/test/zkserver"
)

const (
	idleSpan    = time.Minute
	idleSettled = 15 * time.Second // the start is over by then
)

// idleMember is a member whose processes are watched while nothing happens.
type idleMember struct {
	name      string
	goal      time.Duration // processor time a minute; 0 for none
	processes []idleProcess
}

// idleProcess is a process of an idle member.
type idleProcess struct {
	name          string
	pid           int
	goal          float64 // memory in MB, where the processes of a member share the program; 0 for none
	before, after usage
}

// usage is what a process has used since its start.
type usage struct {
	processor time.Duration
	switches  float64 // voluntary context switches: how often a thread began to wait
}

// idle measures what an idle leader, an idle standby and the two members of a plain lock cost.
func idle(ctx context.Context, t *table, binary string) error {
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	roles, stop, err := g.startIdle(ctx, binary)
	defer stop()
	if err != nil {
		return err
	}
	if err := waitFor(ctx, idleSettled); err != nil {
		return err
	}
	began := time.Now()
	if err := sample(roles, func(p *idleProcess) *usage { return &p.before }); err != nil {
		return err
	}
	if err := waitFor(ctx, idleSpan); err != nil {
		return err
	}
	span := time.Since(began)
	if err := sample(roles, func(p *idleProcess) *usage { return &p.after }); err != nil {
		return err
	}
	return reportIdle(t, roles, span)
}

// sample notes what all processes have used so far.
func sample(roles []idleMember, to func(*idleProcess) *usage) error {
	for _, r := range roles {
		for i := range r.processes {
			u, err := used(r.processes[i].pid)
			if err != nil {
				return err
			}
			*to(&r.processes[i]) = u
		}
	}
	return nil
}

// startIdle starts the leader, the standby, and a holder and a waiter of a plain lock, in this order.
func (g *group) startIdle(ctx context.Context, binary string) (roles []idleMember, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for i, goal := range []time.Duration{25 * time.Millisecond, 12 * time.Millisecond} {
		name := []string{"leader", "standby"}[i]
		n, err := g.spawn(binary, name, plainLockTimeout)
		if err != nil {
			return nil, stop, err
		}
		stops = append(stops, n.kill)
		if err := g.members(ctx, i+1); err != nil {
			return nil, stop, err
		}
		if err := g.leads(ctx, "leader"); err != nil {
			return nil, stop, err
		}
		daemon, err := n.daemon()
		if err != nil {
			return nil, stop, err
		}
		keeper, err := n.helper("keeper")
		if err != nil {
			return nil, stop, err
		}
		roles = append(roles, idleMember{name, goal, []idleProcess{
			{name: "daemon", pid: daemon, goal: 16}, {name: "guard", pid: n.cmd.Process.Pid, goal: 4},
			{name: "keeper", pid: keeper},
		}})
	}
	for _, name := range []string{"plain lock's holder", "plain lock's waiter"} {
		cmd, err := spawnLock(g.server.Addr(), []string{"sleep", "100000"})
		if err != nil {
			return nil, stop, err
		}
		stops = append(stops, func() { endLock(cmd) })
		if err := waitFor(ctx, time.Second); err != nil { // the first one gets the lock
			return nil, stop, err
		}
		roles = append(roles, idleMember{name, 0, []idleProcess{{name: "process", pid: cmd.Process.Pid}}})
	}
	return roles, stop, nil
}

func endLock(cmd *exec.Cmd) {
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
}

// reportIdle adds the figures. A member is compared with that of the plain lock in the same role.
func reportIdle(t *table, roles []idleMember, span time.Duration) error {
	minute := func(u usage) time.Duration {
		return time.Duration(float64(u.processor) * float64(time.Minute) / float64(span))
	}
	totals := make([]usage, len(roles))
	for i, r := range roles {
		for _, p := range r.processes {
			spent := usage{p.after.processor - p.before.processor, p.after.switches - p.before.switches}
			totals[i].processor += spent.processor
			totals[i].switches += spent.switches
			m, err := memoryOf(p.pid)
			if err != nil {
				return err
			}
			goal, alone := "", m.own+(m.resident-m.own)/float64(len(r.processes))
			if p.goal != 0 {
				goal = fmt.Sprintf("<= %g MB", p.goal)
			}
			what := fmt.Sprintf("idle %s's %s", r.name, p.name)
			t.add(what+", processor a minute", ms(minute(spent)), fmt.Sprintf("%.1f voluntary switches a second",
				spent.switches/span.Seconds()), "", true)
			t.add(what+", memory", fmt.Sprintf("%.1f MB", alone), fmt.Sprintf("resident %.1f MB, own %.1f MB",
				m.resident, m.own), goal, alone <= p.goal)
		}
	}
	const plain = 2 // the index of the plain lock's holder
	for i, r := range roles[:plain] {
		ours, other := minute(totals[i]), minute(totals[i+plain])
		what := fmt.Sprintf("idle %s, all processes, processor a minute", r.name)
		t.add(what, ms(ours), fmt.Sprintf("%.1f voluntary switches a second", totals[i].switches/span.Seconds()), "<= "+
			ms(r.goal), ours <= r.goal)
		t.add(what, ms(ours), fmt.Sprintf("%.1f of the %s %s", share(ours, other), roles[i+plain].name, ms(other)),
			"<= 3 of it", ours <= 3*other)
	}
	return nil
}

// used returns what all threads of a process have used.
func used(pid int) (u usage, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return u, err
	}
	for _, thread := range threads {
		data, err := os.ReadFile(thread + "/schedstat")
		if err != nil {
			return u, err
		}
		var ran time.Duration
		if _, err := fmt.Sscan(string(data), &ran); err != nil { // in nanoseconds
			return u, fmt.Errorf("%s/schedstat: %w", thread, err)
		}
		u.processor += ran
		n, err := field(thread+"/status", "voluntary_ctxt_switches")
		if err != nil {
			return u, err
		}
		u.switches += n
	}
	if len(threads) == 0 {
		return u, fmt.Errorf("process %d has ended", pid)
	}
	return u, nil
}

// memory is the memory of a process in MB. Other processes share what is resident and not its own.
type memory struct{ resident, own float64 }

func memoryOf(pid int) (m memory, err error) {
	for _, part := range []struct {
		key string
		to  *float64
	}{{"Rss", &m.resident}, {"Private_Clean", &m.own}, {"Private_Dirty", &m.own}} {
		kb, err := field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), part.key)
		if err != nil {
			return m, err
		}
		*part.to += kb / 1024
	}
	return m, nil
}

// field returns the number after a key in a file of /proc.
func field(file, key string) (float64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}
