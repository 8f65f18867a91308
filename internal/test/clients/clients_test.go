package clients

import (
	"cmp"
	"flag"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/process"
	"zkelectd/internal/test/testhelper"
)

var pauses = flag.Int("clients.pauses", 20, "how often an application is paused, in each language")

// An application that was paused for longer than its lease never believes afterwards that it leads, until it gets
// another lease.
func TestAPausedApplicationDoesNotLead(t *testing.T) {
	f := newFleet(t, 2*time.Second)
	f.daemon("n1", "child: {none: true}")
	const apps = 10 // of each language
	for language := range f.apps {
		t.Run(language, func(t *testing.T) {
			g := *f
			g.t, g.ledger = t, new(ledger)
			done := make(chan struct{})
			for i := range apps {
				p := g.app(language, "n1", "", true)
				go func() {
					defer func() { done <- struct{}{} }()
					for n := i; n < *pauses; n += apps {
						p.pause()
					}
				}()
			}
			for range apps {
				<-done
			}
			t.Logf("%d pauses of %s, %d terms", *pauses, language, len(g.led))
		})
	}
}

// pause waits until an application leads, and stops it until its lease has ended.
func (p *app) pause() {
	if !p.await("lead") {
		return
	}
	p.Signal(syscall.SIGSTOP)
	<-time.After(p.f.lease() + 100*time.Millisecond)
	p.Signal(syscall.SIGCONT)
	p.await("led")
}

// Applications are leaders on one host at a time, in whatever language, whether they stop when they are asked to or
// work until their lease is over, and whatever becomes of the daemon that has handed it out.
func TestApplicationsLeadOnOneHost(t *testing.T) {
	f := newFleet(t, 4*time.Second)
	f.zkelectd("init")
	daemons, apps := make(map[string]*process.Process), make(map[string][]*app)
	start := func(id string) {
		daemons[id] = f.daemon(id, "child: {none: true}")
		for language := range f.apps {
			apps[id] = append(apps[id], f.app(language, id, "", language != "python"))
		}
	}
	leads := func(id string) {
		t.Helper()
		for _, p := range apps[id] {
			p.await("lead")
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	leader, other := "n1", "n2"
	start(leader)
	leads(leader)
	start(other)
	testhelper.Eventually(t, waitTimeout, "both are members", func() bool {
		return exec.CommandContext(t.Context(), f.binary, "probe", "/replica", "--config", f.config(other)).Run() == nil
	})
	for _, c := range []struct {
		name  string
		fault func(guard *process.Process)
	}{
		{"a move", func(*process.Process) { f.zkelectd("move", other, "--wait") }},
		{"a move back", func(*process.Process) { f.zkelectd("move", other, "--wait") }},
		{"the daemon dies", func(p *process.Process) { syscall.Kill(f.child(p, process.Daemon), syscall.SIGKILL) }},
		{"guard and daemon die", func(p *process.Process) {
			daemon := f.child(p, process.Daemon)
			p.Signal(syscall.SIGKILL)
			syscall.Kill(daemon, syscall.SIGKILL)
			<-p.Done
			daemons[leader] = f.daemon(leader, "child: {none: true}") // which releases at once
		}},
		{"the daemon stands still", func(p *process.Process) { syscall.Kill(f.child(p, process.Daemon), syscall.SIGSTOP) }},
		{"the host leaves", func(p *process.Process) { p.Signal(syscall.SIGTERM) }},
	} {
		began := time.Now()
		c.fault(daemons[leader])
		leads(other)
		t.Logf("%s: the other host's applications lead after %s", c.name, time.Since(began).Round(10*time.Millisecond))
		leader, other = other, leader
	}
	for _, all := range apps {
		for _, p := range all {
			p.Signal(syscall.SIGKILL)
			<-p.Done
		}
	}
	f.overlaps()
}

// While ZooKeeper is away, each application works once under what is left of the lease, not again and again with ever
// less time to stop.
func TestAnOutageStopsAnApplicationOnce(t *testing.T) {
	f := newFleet(t, 6*time.Second)
	f.daemon("n1", "child: {none: true}")
	f.publish("n1", strings.Repeat("<", 1024)) // what is longest in JSON
	var apps []*app
	for language := range f.apps {
		apps = append(apps, f.app(language, "n1", "", false))
	}
	for _, p := range apps {
		p.await("lead")
	}
	f.zk.Stop()
	for _, p := range apps {
		p.await("led")
	}
	<-time.After(f.lease())
	for _, p := range apps {
		if n := len(p.lines); n != 0 {
			t.Errorf("%s: works %d times more", p.name, (n+1)/2)
		}
	}
}

// Each slot has leases of its own.
func TestEachSlotHasItsOwnLeases(t *testing.T) {
	f := newFleet(t, 4*time.Second)
	apps := make(map[string]*app)
	for _, id := range []string{"n1", "n2"} {
		f.daemon(id, "child: {none: true}\nslots: {count: 2, per_node: 2}")
		for _, slot := range []string{"c/0", "c/1"} {
			apps[id+" "+slot] = f.startApp("go", f.socket(id), slot, time.Hour, false)
		}
	}
	leading := func(slot string) (leader, other string) {
		for {
			select {
			case line := <-apps["n1 "+slot].lines:
				if line == "lead" {
					return "n1", "n2"
				}
			case line := <-apps["n2 "+slot].lines:
				if line == "lead" {
					return "n2", "n1"
				}
			case <-time.After(waitTimeout):
				t.Fatalf("nobody leads %s", slot)
			}
		}
	}
	leader, other := leading("c/0")
	leading("c/1")
	f.zkelectd("move", other, "--wait", "--group", "c/0")
	apps[leader+" c/0"].await("led")
	apps[other+" c/0"].await("lead")
}

// overlaps checks that no two terms in which applications were leaders overlap.
func (f *fleet) overlaps() {
	f.t.Helper()
	led := slices.DeleteFunc(f.led, func(l term) bool { return l.from == 0 })
	slices.SortFunc(led, func(a, b term) int { return cmp.Compare(a.from, b.from) })
	for i, a := range led {
		for _, b := range led[i+1:] {
			if a.token != b.token && (b.from <= a.to || b.token < a.token) {
				f.t.Errorf("%+v and %+v", a, b)
			}
		}
	}
	f.t.Logf("%d terms of applications", len(led))
	if len(led) < 15 {
		f.t.Error("these are too few")
	}
}
